// Package election has one leader at a time over any number of processes, by a lock of package
// dblock: its holder leads, and its queue are the candidates.
//
//	elections := election.New(client)
//	err := elections.Campaign(ctx, "indexer", func(ctx context.Context, t *election.Term[pgx.Tx]) error {
//		return index(ctx, t.Token()) // until ctx ends
//	}, election.Metadata(map[string]string{"address": address}))
//
//	for leader, err := range elections.Observe(ctx, "indexer") {
//		…
//	}
//
// # Terms
//
// A candidate waits in the queue of the lock whose name is that of the election, so that Inspect,
// Ask and Break of dblock.Client work on it, and one who locks that name keeps everybody from
// leading. Who gets the lock is elected: that is written into the history of the name ("elected",
// with the token and the candidate's metadata) under the lock of the name's row, and then the term
// begins. It ends when the lock does, or with a resignation, or with the context of the campaign.
//
// # What is promised
//
// One leader: of all contexts that were given to leaders of a name, one is live at a time, under
// the condition that dblock.Lock.Context states: no process is stopped for longer than its margin
// between looking at its context and acting. A leader that may be stopped so has to send its token
// along, or to write under Guard.
//
// Order: tokens rise from term to term, and the history has the terms in the order in which they
// were held.
//
// No gap in observation: Observe yields every term since the first value in that order, also one
// that lasted for a moment only, and also where the database, or the observer's way to it, was away
// meanwhile.
//
// Nobody leads by half: Campaign waits for the leader's function to return before it hands the lock
// on. A function that does not return after its context has ended keeps the election from its
// successor, unless the lock is lost.
//
// Hand-over: after a resignation or the end of a campaign, the next candidate has the lock with the
// commit that gives it back. After a crash the next leads within TTL + 1 s.
//
// First come, first served: who resigns goes to the end of the queue.
//
// # What is not
//
// One leader after dblock.Client.Break, which is a theft: the next leads at once, and the context
// of the last ends when its client hears of that, within a fifth of its TTL. Tokens and Guard know
// no such exception. Ask is the polite way.
//
// That there is a leader: there is none while no candidate reaches the database, and a network that
// parts a leader from it ends the term after a TTL. That a leader knows at once: one whose
// connection is gone leads on until its lock would end. That an observer is up to date: what it has
// is the latest of which it has heard. Nor is a term in the history proof that the function ran:
// the process may have died in between.
//
// # Failures
//
// A leader that is stopped in the middle of a transaction of the application's keeps the rows
// locked that it has written or guarded there: fence.Check of its successor waits for the fence's
// row, and what Guard holds cannot be taken over, until that transaction ends. The database ends it
// when the process or its connection ends; for a process that is stopped (SIGSTOP, a paused
// container) only a limit of the server's does: set idle_in_transaction_session_timeout on
// PostgreSQL, idle_transaction_timeout on MariaDB, and on MySQL wait_timeout, for the connections
// on which a leader writes, to no more than a successor may wait.
//
// A campaign and an observation survive restarts and failovers of the database, and begin with an
// error only: ErrSchema, ErrUnavailable and the like are said at once, where the database cannot be
// used from the start. A leader whose database is away leads until its TTL is over, and is a
// candidate again as soon as it is back. A failover that loses commits can lose the latest terms:
// observers then see the next one, with a higher token.
//
// The history is kept for as long as reaper.History says. An observer that was cut off for longer
// misses what was deleted meanwhile, and no more than that.
//
// # Choices
//
// The term is written into the history before the function runs, and not after, so that an observer
// never hears of a leader later than of what it did, and costs one commit for each term. Without
// it, observers could see no more than the lock as it is whenever they look.
//
// A resignation is written into it only where nobody waits: then it is what wakes the observers.
// Otherwise the successor's term does, and a commit before the hand-over would be time without a
// leader.
//
// A campaign is an owner of its own, also under a lock's context. Two campaigns with the same owner
// would enter one lock twice, and both would lead. The price is that the search for deadlocks does
// not see that whoever called Campaign may hold a lock that the present leader waits for: campaign
// under no lock.
package election
