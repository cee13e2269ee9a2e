// Package operate has the calls of operators and probes: Ask and Break act upon the locks of
// others, Ping reports whether the client can lock.
//
// Break reads the holders of the name, and revokes the name from each of them by a transition that
// compares the token (protocol.Break). It repeats both until each chosen holder has lost the name:
// a transaction that a holder guards may be in the way, or the member of a cohort may have become a
// holder by itself. After a lost answer the next read tells whether the holder has lost the name.
package operate
