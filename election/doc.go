// Package election elects one leader at a time among any number of processes, with a lock of
// package dblock. The holder of the lock leads, and the waiters in its queue are the candidates.
//
//	elections := election.New(client)
//	err := elections.Campaign(ctx, "indexer", func(ctx context.Context, t *election.Term) error {
//		return index(ctx, t.Token()) // until ctx ends
//	}, election.Metadata(map[string]string{"address": address}))
//
//	for leader, err := range elections.Observe(ctx, "indexer") {
//		…
//	}
//
// # Terms
//
// The lock has the name of the election, so that package inspect shows it, and Ask and Break of
// dblock.Client work on it. Candidates that wait are marked as such, and count as no contention in
// Filter.Contended, in metrics and in alerts: they wait for as long as another one leads. A holder
// of the lock that is no candidate keeps all candidates from leading. A candidate that is granted
// the lock is elected: an event ("elected", with the token and the candidate's metadata) is written
// into the history of the name, under the lock of the name's row, and then the term begins. The
// term ends with the lock, with a resignation, or with the context of the campaign.
//
// # Promises
//
// One leader: of all contexts that were given to leaders of a name, one is live at a time.
// dblock.Lock.Context states the condition: no process is stopped for longer than its margin
// between a look at its context and an action. A leader that may be stopped so must send its token
// along, or write under Guard.
//
// Order: tokens rise from term to term, and the history has the terms in their order.
//
// No gap in observation: Observe yields every term since the first value, in that order. It also
// yields a term that lasted for a moment only, and terms that began while the database or the
// observer's connection was away.
//
// No overlap: Campaign waits for the leader's function to return before it releases the lock. A
// function that does not return after its context has ended delays its successor, unless the lock
// is lost.
//
// Hand-off: after a resignation or the end of a campaign, the commit that releases the lock grants
// it to the next candidate. After a crash the next candidate leads within TTL + 1 s.
//
// First-come, first-served: a leader that resigns goes to the end of the queue.
//
// The heaviest next: among candidates with different weights (the option Weight), the heaviest that
// waits leads next.
//
// # Weights
//
// The queue of the lock stays first-come, first-served. A candidate that is granted the lock looks
// at the queue before its term begins. If a heavier candidate waits there alive, it releases the
// lock and stands again, behind that one. So each candidate before the heaviest one lets it pass
// once, the heaviest leads after at most as many hand-offs as there are candidates before it, and
// equal ones never yield to each other. A lock that passes a candidate begins no term. A leader
// that reads Term.Preferred is notified of a heavier candidate, and chooses the moment at which it
// resigns. Other programs that wait for the lock have the default weight, and let no candidate
// pass.
//
// # Shares
//
// Shares divides work into shards. Each shard is an election. Members hold one name together
// (Shared), and watch it. Each member computes the owners from the living members alone: the pairs
// of member and shard in the order of a hash of both (rendezvous hashing), but none beyond
// ⌈n ÷ members⌉ + 1 shards of a member. Of each shard only the owner and the next owner campaign,
// the one that owns it without the present owner. The next owner waits in the queue, and has the
// shard with the commit that releases it, or when the lease of a crashed owner has expired. The
// owner has a greater weight. A member that runs a shard of another owner reads the queues, and
// asks its function to return as soon as the owner waits. The members that a member sees decide
// whether it campaigns. The lock alone decides which member has the shard.
//
// While nothing changes, a member costs its heartbeats, and a few reads in each TTL for all of its
// shards together. A shard that moves costs a place in a queue, a hand-off, and its term's event.
// A member that comes or goes also moves a few shards between others, because their bounds change:
// about one of twenty-five. While shards move, a member may have more than it owns. If the owner of
// a shard and the next one die together, a third member has to notice that before it campaigns.
//
// # Not promised
//
// The heaviest leader at each moment: a lighter one leads until it resigns, and a heavier candidate
// that crashed counts as alive until its TTL has passed.
//
// One leader after dblock.Client.Break: the next candidate leads at once, and the context of the
// previous leader ends when its client is notified of that, within a fifth of its TTL. For tokens
// and Guard there is no such exception. Prefer Ask.
//
// One leader at each moment with the option Owner, if two processes with the same Owner live: the
// later one leads at once, as after a Break.
//
// A leader at each moment: there is none while no candidate reaches the database, and a network
// partition between leader and database ends the term after a TTL.
//
// Immediate knowledge: a leader without a connection leads on until its lock would end. An observer
// has the latest term of which it was notified. A term in the history does not prove that the
// function ran: the process may have died in between.
//
// # Failures
//
// A leader that is stopped in the middle of an application's transaction keeps the rows locked that
// it has written or guarded there. Until that transaction ends, fence.Check of its successor waits
// for the fence's row, and a guarded lock cannot be taken over. The database ends the transaction
// when the process or its connection ends. For a process that is stopped (SIGSTOP, a paused
// container) only a limit of the server's does. So set idle_in_transaction_session_timeout on
// PostgreSQL, idle_transaction_timeout on MariaDB, and wait_timeout on MySQL, for the connections
// on which a leader writes, to no more than a successor may wait.
//
// A campaign and an observation survive restarts and failovers of the database. They fail at once,
// with ErrSchema, ErrUnavailable and the like, only where the database cannot be used from the
// start. While the database is away, a leader leads until its TTL has passed, and it is a candidate
// again as soon as the database is back. A failover that loses commits can lose the latest terms:
// observers then see the next one, with a higher token.
//
// reaper.History sets how long the history is kept. An observer that was cut off for longer misses
// the terms that were deleted meanwhile, and no others.
//
// # Choices
//
// The term is written into the history before the function runs, so that observers are notified of
// a leader before they can see its work. That costs one commit for each term. Without it, observers
// would see only the lock at the moments when they look.
//
// The queue is read before each term, also where no candidate has a weight, since a candidate
// cannot know the weights of others without it. That costs one read for each term.
//
// A resignation is written into the history only if there is no waiter: then it notifies the
// observers. Otherwise the successor's term does, and one more commit before the hand-off would be
// time without a leader.
//
// A campaign is an owner of its own, also under a lock's context. Two campaigns with the same owner
// would enter one lock twice, and both would lead. The price: deadlock detection does not see that
// the caller of Campaign may hold a lock that the present leader waits for. So call Campaign under
// no lock. With the option Owner the campaign has that owner, so that a restarted process finds its
// own lock. A second campaign of that owner in one client would enter the first one's lock, and is
// refused.
package election
