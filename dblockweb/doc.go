// Package dblockweb is a web page for operators: the holders of locks, since when they hold them,
// the waiters, and the locks that these wait for. It shows locks, sessions, jobs, elections and the
// history of one database, and follows changes. It lets people ask holders for a lock or revoke it,
// if the application allows that.
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
// So it works below any path that ends with a slash, with or without http.StripPrefix, and behind a
// proxy that changes the path. Without the slash at the end it redirects to the same path with one.
// It knows only the path that the proxy sends: if that path ends with another name than the
// browser's, the proxy has to redirect. Everything is in the binary: no build step, no other host.
//
// # Rights
//
// Without Authorize the page is read-only, for everyone who can reach it. Authorize decides for
// each request. It returns an Access, whose zero value allows nothing. To look and to act are two
// fields, so that no hook that was written for one allows the other.
//
// Break carries the token of the holder that the person has seen and confirmed. If that holder has
// released the lock meanwhile, nothing is revoked, and the page says so. There is one exception: if
// goroutines of one client pass a lock on in memory, the page shows the last of their tokens, and
// the present holder among them loses the lock (see Client.Break).
//
// Ask and Break continue for up to 15 seconds, also if the browser leaves. If they fail, their
// outcome may be unknown: the page says that it is not confirmed.
//
// # Defences
//
//   - Requests that another site makes a browser send: only POST changes anything, and
//     http.CrossOriginProtection refuses requests that do not come from the page's own origin.
//     Other sites, including those on other ports or subdomains, can link to the page; they cannot
//     frame it, read it, or open its stream. The page needs no cookies of the application.
//   - Hostile text in names, metadata and reasons: it is escaped, and a Content-Security-Policy
//     forbids every script but the page's own file, and every inline style.
//   - Too many viewers: 64 streams at once, each of which reads at most twice a second, even if a
//     lock changes more often. A viewer without a stream reloads.
//
// A reverse proxy that speaks plain HTTP with browsers must pass on the header Host. Without HTTPS,
// browsers send no other header that distinguishes the page's own forms from those of other sites,
// and all forms would be refused.
//
// # Reads
//
// A page shows a limited number of rows, says so, and links to the next ones: 100 names with
// waiters and 100 others, 100 sessions, 20 jobs with 50 slots each, 100 events, 50 elections. For
// each name the lists read all holders and the first 10 waiters. While it is viewed, a page is read
// again every 2 to 5 seconds.
//
// The page of one lock and the forms of Ask and Break also follow Watch. These pages read more than
// they show: the whole queue of the lock. The page of a lock also reads the queues of the locks
// that its holders wait for, directly or through others, at most 1,000 names. Jobs cannot be read
// from a name on: a later page of them also reads the last run of each job before.
//
// Elections: the tables have no mark of an election. The page treats a name as an election if its
// history has an event "elected" or "resigned", which package election writes. The holder whose
// token is that of the last "elected" leads.
//
// Jobs: a slot of OncePer without a run, between the first known run and now, is shown as missed;
// now is by this machine's clock. The database has no schedule of OnceAt: only runs are shown.
package dblockweb
