// Package inspect shows the locks of a database: holders, queues, sessions and history. It is for
// exporters, web pages and tools of operators.
//
//	inspector := inspect.New(client)
//	lock, err := inspector.Lock(ctx, "invoice/42")
//	…
//	for _, holder := range lock.Holders {
//		fmt.Println(holder.Host, holder.Token, holder.Since)
//	}
//
// # Terms
//
// Info shows one name. Its holders have the name alone or share it, and its waiters are in the
// order of the queue. Each of both is a Participant: an owner (Host and Thread) in a session. A
// Session is one client, and all of its locks live as long as its session. An Event is an entry of
// the history: a lock of a client with dblock.WithEvents was granted, released or lost, or Ask,
// Break or Record was called.
//
// # Flow
//
// Lock and Why read everything about a few names. List, Sessions and Events read pages: each row is
// as it was when its page was read, and the next page begins after the last row. Watch reads a name
// again whenever it may have changed.
//
// All of these only read, without locking a row, so that they delay no lock. A read that fails
// because the database is away is retried for at most a TTL, and then ErrUnavailable; a list does
// so for each page. To act upon a result, give the token of a Participant to Client.Break.
//
// Times are by the database's clock, except the times of a future end, which are by the clock of
// this machine.
package inspect
