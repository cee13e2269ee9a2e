// Package dblockweb is a web page for operators: who holds which lock, since when, who waits, and
// for whom. It shows locks, sessions, jobs, elections and the history of one database, follows what
// changes, and lets people ask holders for a lock or take it away, if the application says who may.
//
//	locks := dblockweb.Handler(client, dblockweb.Authorize(func(r *http.Request) dblockweb.Access {
//		user := userOf(r)
//		return dblockweb.Access{Look: user != nil, Act: user.IsOperator(), By: user.Name()}
//	}))
//	mux.Handle("/admin/locks/", locks)
//
// The command "dblock ui" serves the same page on this machine, without an application.
//
// # Where it can stand
//
// The handler looks only at the last part of a request's path, and all of its links are relative.
// So it works below any path that ends with a slash, with http.StripPrefix or without, and behind a
// proxy that changes the path. Without the slash at the end it redirects to the same path with one.
// It only knows the path that the proxy sends: where that ends with another name than the
// browser's, the redirect has to be the proxy's. Everything is in the binary: no build step, no
// other host.
//
// # Who may do what
//
// Without Authorize the page is read-only, for everybody who can reach it. Authorize decides for
// each request. What it returns is an Access, whose zero value allows nothing: to look and to act
// are two fields, so that no hook that was written for the one allows the other.
//
// Break carries the token of the holder that the person has seen and confirmed. Where that holder
// has released the lock meanwhile, nothing is taken from anybody, and the page says so. There is
// one exception: where goroutines of one client pass a lock on in memory, any token of theirs
// stands for all of them, and the one that has the lock by then loses it (see Client.Break).
//
// Ask and Break go on for up to 15 seconds, also when the browser leaves. Where they fail, it may
// not be known whether they were done: the page says that it is not confirmed.
//
// # What the page defends itself against
//
//   - Requests that another site makes a browser send: only POST changes anything, and
//     http.CrossOriginProtection refuses what does not come from the page's own origin. Other
//     sites, those on other ports or subdomains included, can link to the page; they cannot frame
//     it, read it, or open its stream. Nothing is needed from the application's cookies.
//   - Hostile text in names, metadata and reasons: it is escaped, and a Content-Security-Policy
//     forbids every script but the page's own file, and every inline style.
//   - Too many viewers: 64 streams at once, each of which reads at most twice a second, however
//     often a lock changes. A viewer without a stream reloads.
//
// A reverse proxy that speaks plain HTTP with browsers must pass the header Host on: without HTTPS
// browsers send nothing else by which the page's own forms can be told from those of others, and
// they would be refused.
//
// # What it reads
//
// A page shows at most so many rows, says so, and has a link to the next ones: 100 names with
// waiters and 100 others, 100 sessions, 20 jobs with 50 slots each, 100 events, 50 elections. Of
// each name the lists read all holders and the first 10 waiters. While somebody looks, a page is
// read again every 2 to 5 seconds.
//
// The page of one lock and the forms of Ask and Break also follow Watch. These pages read more than
// they show: the whole queue of the lock, and the page of a lock also the queues of those that its
// holders wait for, directly or through others, 1,000 names at most. Jobs cannot be read from a
// name on: a later page of them also reads the last run of each job before.
//
// Elections: the tables have no mark of an election. The page takes names for elections whose
// history has an event "elected" or "resigned", which package election writes. The holder whose
// token is that of the last "elected" leads.
//
// Jobs: a slot of OncePer without a run, between the first run that is known and now, is shown as
// missed; now is by this machine's clock. Of OnceAt the database has no schedule: only runs are
// shown.
package dblockweb
