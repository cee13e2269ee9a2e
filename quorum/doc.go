// Package quorum is one lock over several independent databases, for applications that cannot have
// a single database as a single point of failure. Locking continues while one of 3 databases, or
// two of 5, are away, slow or empty. The databases need not know of each other, and may be of
// different engines.
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
// half of the nodes: any two majorities have a node in common, and everything here rests on that
// node. A round asks all nodes at once, each for the plain lock of that name (TryLock, so that no
// request queues in a database). A client that locks the name on one node alone blocks that node's
// vote, and does not hold the quorum's lock.
//
// # Having the lock
//
// A round has the lock when a majority of the nodes, at one moment,
//
//   - have granted it to sessions that are still trusted,
//   - have reported after the grant that they remember (see below),
//   - and know its token.
//
// The lock on each node is an ordinary dblock lock. It depends on the session of that node's
// client, which heartbeats renew. The session is trusted until a deadline, counted from before the
// heartbeat was sent, less a margin for clock drift and the round trip. So the validity time is
// that of Redlock (Sanfilippo), node by node and renewed: Until is the last moment at which a
// majority of the nodes is before its deadline. The lock is lost when it is live on fewer than a
// majority of the nodes. Nodes that were late, or went and came back, join the lock while it is
// held. So the lock survives any number of failures that leave a majority at each moment.
//
// There cannot be two holders at once: they would have a node in common, which would have granted
// the name twice while the first grant was trusted. dblock does not do that on a database that
// keeps its data and has a clock that does not jump ahead by a TTL, except for Break.
//
// A failed round releases all its grants. The next one follows after a random pause that grows. If
// a node grants the lock after its time limit, the node's own client releases the lock. When
// several clients split the nodes, all of them may fail and retry: there is no queue over a quorum,
// and no promise of fairness.
//
// # Tokens
//
// Redlock has no fencing token. A counter on each node is not enough, since two majorities agree on
// no counter. The largest of a majority's tokens is not enough either: the one node that had the
// largest may be missing from the next majority. Here a round takes T, the largest token of the
// majority that granted, and writes T to that majority. Each node raises its own token to T,
// durably, as long as the grant is still held there. The round has the lock only when a majority of
// nodes have the write. All of these must be trusted still at that moment, and none may have known
// a token above T when it granted.
//
// Then tokens rise in the order in which the lock is held. Let A hold the lock at time a, and B at
// b > a. Some node n is in A's majority at a and in B's at b. On n, A's grant was held from before
// A's write until a, and B's likewise until b. One node's grants of a name do not overlap. Either
// B's grant on n came after A's write: then n gave B a token above A's T, and B's own T is not less
// than that. Or B's grant came before A's: then its trust was over before a, and n is not in B's
// majority at b. It is tempting to count a node that granted late, after T was fixed. But between
// the two another holder may have come and gone there. So a grant above T helps to keep the lock
// and does not count for acquiring it.
//
// A crash between any two of these steps leaves tokens on some nodes that no holder was given. They
// only make the next tokens larger.
//
// # Nodes that lose their data
//
// A node that was wiped has forgotten its holder, and would grant the name a second time. It has
// also forgotten the tokens. So each node has a memory: one row with the time since when the node
// has its data, and with a floor, a token that no earlier token was above. A database without the
// row writes the row when it is first asked, with the time of its own clock and no floor.
//
// The first rule: a node counts only when its memory is older than the quarantine, and the memory
// is read after the grant. The quarantine is at least twice the longest TTL of any client. A holder
// of the lock on that node had its last answer before the data was lost, and trusts that answer for
// a TTL at most. So when the node counts again, no holder relies on a grant that the node forgot.
// The quarantine is twice the TTL, because a session that a backup still has is renewed once more
// before its client notices that the lock is missing.
//
// The second rule: a node counts only with a floor, and T is above the floors of all nodes that
// count. When the quarantine has ended, and not before, a healer (a client that found the node)
// writes a floor to it: the largest token that a majority of other nodes remember, all of which
// count. Before that, a client may have counted on the forgetful node and still be writing T to the
// others. Now that client has either written T or lost its trust. Of any majority that remembers,
// one node knows T: that was so when T was written, and a node that forgets is not asked until it
// knows T again. With its floor the node begins a second quarantine. So a late healer with an older
// floor finds a node that does not count yet: each healer gives up after half a quarantine.
//
// So an empty database may replace a broken one at any time, as long as a majority remembers. It
// counts two quarantines later, without an operator, if clients lock meanwhile: their rounds find
// it. If an SQLite file is replaced, its pool refuses to work until it is closed and opened again.
//
// The client detects a database, or dblock's tables in it, that was made anew. It does not detect
// data that went back to an earlier state, from a backup, a snapshot, or a standby that took over
// without the latest commits: that needs a call of Quarantine before clients reach the node. The
// same database given as two nodes is safe, and fails.
//
// There is no protection against:
//
//   - One node that is two databases: an old primary that some clients still reach, or an SQLite
//     file that was replaced while others have it open.
//   - A database clock that jumps ahead. By a TTL: sessions end for that node while their clients
//     still trust them, and it grants their locks again. By a quarantine: the node counts too soon
//     after a loss.
//   - dblock.Client.Break on one node: that node's lock is gone before its holder is notified. If
//     it was the one node that two majorities have in common, there are two holders until then, the
//     second with the higher token.
//   - A healer's request that a database executes long after the healer gave up, when another
//     healer has healed the node and it has lost its data again: the floor in the request is from
//     before that, and may be below a token.
//
// When a majority has lost its data, no majority remembers, and the quorum is blocked until an
// operator calls Init.
//
// # Failures
//
// A node that does not answer within its time limit is left out of the round, and asked again in
// the next. Where another client is in the way on one node, a round does not wait for a node that
// was late in the round before: it fails at once, releases its grants, and retries after its pause.
// So a node that hangs costs no more than one that is dead. Without a majority Lock fails with
// dblock.ErrUnavailable after its patience, and TryLock after one round. Both errors have the error
// of each node. When the nodes are back, locking continues by itself. Without a majority the holder
// loses the lock, at the latest at Until. When a process dies, each node grants its lock again a
// TTL later, or sooner on the same host.
//
// # Choices
//
// The memory is read after the grant and not along with it: read before, it says nothing about the
// data with which the grant was made. A lock costs three round trips, each to all nodes in
// parallel: grant, memory, token. An unlock costs one.
//
// Lock returns once a majority has granted. The other nodes join while the lock is held. To wait
// for all would make each lock as slow as the slowest node.
//
// Membership is fixed. A node may be replaced by an empty one at any time. To change the number of
// nodes, stop all clients, call Quarantine for each node of the new set, and then Init. A majority
// of the old nodes must be in the new set.
package quorum
