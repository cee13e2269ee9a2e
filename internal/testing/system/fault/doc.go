// Package fault breaks things under dblock from outside: it kills and stops real processes,
// cuts their network, kills and stops their servers, and records what every client believed
// meanwhile. It has tests only.
//
// # Actors
//
// A client under test is a process of its own, an actor: this test binary again, which obeys
// commands on its standard input and tells on its standard output what happened and when. Times are
// of the kernel's CLOCK_BOOTTIME, the same in all processes, so that the test can compare the
// belief of one client with the grants of another.
//
// # Belief
//
// A hold is believed in from when Lock returned until its context was last seen alive. An actor
// looks every few milliseconds, and reads the clock before it looks: at that moment the hold was
// believed in for certain. Looks of a process that was starved or stopped count like any other.
//
// # Histories
//
// A history is what several actors did at random, under faults, from a seed (-seed, printed with
// each failure). Checkers read it afterwards, and the database's own record of it, which
// triggers wrote. Each checker is itself tested with an engine that was broken for the purpose.
//
// # Elections
//
// Five processes stand for election. Leaders are killed, are stopped for longer than their TTL, and
// end in good order, and the server dies. Some candidates are heavier than others. Two more
// processes observe, and are stopped at times themselves. The beliefs of the leaders, the history
// and the values of each observer must agree.
//
// # Shares
//
// Eight processes share 100 shards, each an election. One at a time is killed, stopped or ended.
// The beliefs of the members must not overlap, each shard must be with a member again, and few
// shards but those of the member that went may move.
//
// # One host
//
// Eight processes of one host share locks, and the folder that package crash explains. They are
// killed, stopped, cut off and restarted, and files of the folder are replaced by copies. The test
// knows which processes live. No session of those may be buried, and no lock of theirs may move
// before its lease ends. The locks of a killed process must move long before that.
package fault
