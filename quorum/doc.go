// Package quorum is one lock over several independent databases, for whom a single database is a
// single point of failure: of 3 databases one, of 5 two may be away, slow or empty, and locks go
// on. They need not know of each other, and may be of different engines.
//
//	nodes := []quorum.Node{quorum.On(berlin), quorum.On(paris), quorum.On(rome)} // three *dblock.Client
//	client, err := quorum.New(nodes)
//	…
//	lock, err := client.Lock(ctx, "invoice/42")
//	if err != nil {
//		return err
//	}
//	defer lock.Unlock(ctx)
//	charge(lock.Context(), lock.Token())
//
// Before the first lock, once: quorum.Init(ctx, nodes...).
//
// # Terms
//
// A node is one database, with dblock's tables, through one *dblock.Client. A majority is more than
// half of the nodes: any two have a node in common, and everything here rests on that node. A round
// asks all nodes at once, each for the plain lock of that name (TryLock, so that nobody queues in a
// database). Whoever locks the name on one node alone is in the way of that node's vote, and no
// holder.
//
// # Having the lock
//
// A round has the lock when a majority of the nodes, at one moment,
//
//   - have granted it, to sessions that are still trusted,
//   - have said after that that they remember (see below),
//   - and know its token.
//
// Each node's part is an ordinary dblock lock: it hangs on the session of that node's client, which
// a heartbeat renews, and is trusted until the deadline, counted from before the heartbeat was sent
// and less a margin for the drift of the clocks and the way there and back. So the validity time is
// that of Redlock (Sanfilippo), node by node and renewed: Until is the moment to which a majority
// of the deadlines reach. The lock is lost when the contexts of fewer than a majority of its parts
// are live. Nodes that were late, or went and came back, join it while it is held; so it outlives
// any number of failures that leave a majority at each moment.
//
// Two cannot have it at once: they would have a node in common, which would have granted the name
// twice while the first grant was trusted. dblock does not do that on a database that keeps its
// data, and whose clock does not jump ahead by a TTL, unless it is told to (Break).
//
// A round that does not succeed gives everything back before the next one, after a random pause
// that gets longer. What a node granted after its time limit the node's own client gives back. With
// the nodes split among several, all may fail and try again: there is no queue over a quorum, and
// fairness is not promised.
//
// # Tokens
//
// Redlock has no fencing token. A counter on each node is none, since two majorities agree on no
// counter; the largest of a majority's tokens is none either: the one node that had the largest may
// be missing from the next majority. Here a round takes T, the largest token of the majority that
// granted, writes it to that majority (each node raises its own token to T, durably, as long as it
// still holds the grant), and has the lock only when a majority of nodes have the write, all of
// which are still trusted at that moment, and none of which knew of a token above T when it
// granted.
//
// Then tokens rise in the order in which locks are had. Let A have the lock at time a, and B at b >
// a. Some node n is in A's majority at a and in B's at b. On n, A's grant was held from before A's
// write until a, as B's was until b; one node's grants of a name do not overlap. Either B's grant
// on n came after A's write: then n gave B a token above A's T, and B's own T is not less than
// that. Or it came before A's grant: then its trust was over before a, and n is not in B's majority
// at b. It is tempting to count a node that granted late, after T was fixed: between the two a
// whole holder may have come and gone there. So a grant above T helps to keep the lock and does not
// count for having it.
//
// A crash between any two of these steps leaves tokens on some nodes that nobody was given. They
// only make the next ones larger.
//
// # Nodes that lose their data
//
// A node that was wiped has forgotten its holder, and would let a second one in; and it has
// forgotten the tokens. So each node has a memory: one row that says since when it has its data,
// and a floor, a token that none before was above. A database without the row writes it when it is
// first asked, with the time of its own clock and no floor.
//
// The first rule: a node counts only when its memory is older than the quarantine, at least twice
// the longest TTL of any client, and it is asked after it has granted. Whoever held the lock there
// when the data was lost had heard from the node before that, and trusts it for a TTL at most; by
// the time the node counts again nobody relies on what it forgot. Twice, because a session that a
// backup still knows is renewed once more before its client finds that the lock is missing.
//
// The second rule: a node counts only with a floor, and T is above the floors of all that count.
// When the quarantine is over, and not before, the node is told the largest token that a majority
// of other nodes remember, all of which count. Until then someone may have counted on the forgetful
// node and still be writing T to the rest; now he has either done so or lost its trust. Of any
// majority that remembers, one node knows T: that held when T was written, and a node that forgets
// is no longer asked until it knows T again. With its floor the node begins a second quarantine, so
// that a healer who is late, and writes an older floor, finds a node that does not count yet: each
// gives up after half a quarantine.
//
// So an empty database may be put in the place of a broken one at any time, as long as a majority
// remembers. Two quarantines later it counts, by itself, if there are locks meanwhile: they are
// what finds it.
//
// What is found by itself: a database, or dblock's tables in it, that was made anew. What is not,
// and needs a call of Quarantine before clients reach the node: data that went back to an earlier
// state, from a backup, a snapshot, or a standby that took over without the latest commits. The
// same database given as two nodes is safe, and fails.
//
// What nothing helps against:
//
//   - One node that is two databases: an old primary that some still reach, or an SQLite file that
//     was replaced while others have it open.
//   - A database clock that jumps ahead. By a TTL: sessions are over for that node which their
//     clients still trust, and it lets a second one in. By a quarantine: it counts too soon after a
//     loss.
//   - dblock.Client.Break on one node: that node's part is gone before its holder hears of it. If
//     it was the one that two majorities have in common, both have the lock until then, the second
//     with the higher token.
//   - A healer's request that a database carries out long after the healer has given it up, when
//     the node has been healed by another and has lost its data again: the floor that it writes is
//     from before that, and may be below a token.
//
// When a majority has lost its data nobody remembers, and the quorum stands still until an operator
// calls Init.
//
// # Failures
//
// A node that does not answer within its time limit is left out of the round, and asked again in
// the next. Where another client is in the way on one node, a round does not wait for a node that
// was late in the round before: it fails at once, gives back what it has, and tries again after its
// pause. So a node that hangs costs no more than one that is dead. With a majority gone Lock fails
// with dblock.ErrUnavailable after its patience, TryLock after one round, and both say what each
// node said; nothing has to be done when the nodes come back. Who holds the lock then loses it, at
// the latest at Until. A process that dies leaves its parts to the nodes, each of which is free a
// TTL later.
//
// # Choices
//
// The trip for the memory comes after the grant and not along with it: asked before, it says
// nothing about the data with which the grant was made. A lock costs three trips to the nodes, in
// parallel: grant, memory, token; an unlock one.
//
// A lock is returned once a majority has it: the others join while it is held. To wait for all
// would make each lock as slow as the slowest node.
//
// Membership is fixed. A node may be replaced by an empty one at any time; to have more or fewer of
// them, stop all who lock, call Quarantine for each node of the new set, of which a majority of the
// old one must be part, and then Init.
package quorum
