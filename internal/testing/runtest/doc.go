// Package runtest plays the real client against a database in memory, with everything that happens
// between the two in the hands of a scheduler: which statement takes effect, which answer arrives,
// which hint, whose context ends, who unlocks, how much time passes. It has tests only.
//
// # A world
//
// A world has some machines, each with a client of its own, and some actors on each machine that
// lock and unlock, detach and resume. It runs in a bubble of testing/synctest. Before each step
// every goroutine is blocked: on a statement, on a timer, or on the actor that it belongs to. The
// scheduler then does one thing, drawn from the seed.
//
// A statement takes effect in one step and is answered in another. Its answer can be lost before
// and after it took effect; a statement whose answer was lost, or whose caller has left, may take
// effect much later. Hints are delayed, doubled, lost and reordered. A machine can be cut off the
// database. It can also be stopped: then its clock stands, its actors do nothing and nothing
// arrives. It goes on with a jump of its clock.
//
// # The judge
//
// The judge looks at the world after each step. An actor believes in a lock from the return of
// Acquire or Resume until it calls Unlock, or the lock's context ends. The judge demands:
//
//   - nobody believes while another does, and the tables say the same as the believer;
//   - each belief begins before the deadline of its session, with a token above all before it;
//   - no belief begins while an earlier ticket waits, unless its actor leaves or its session ends;
//   - no lock and no place is given up, or lost, without a reason;
//   - every call returns in the end, and the tables are empty then.
//
// A lock that was detached is nobody's. It leaves its session by one Resume with its token, or when
// its time is over, and not before. If a Resume was not answered, it may be released at once.
//
// What Break takes away is believed in until its client hears of it, and not a moment longer. A
// Break with a token takes nothing but the holder that has it, or what is left of its run.
//
// # Run it
//
// A failure prints its seed and the last steps. DBLOCK_SEED=N plays one world again. The goroutines
// between two steps, and the jitter of the client's pauses, are not in the hands of the scheduler,
// so a world may need some turns to go the same way: -count says how many. DBLOCK_TEST_STEPS is how
// many steps all worlds have together.
package runtest
