// Package store calls a client's database: one way to send a statement, one way to retry it, and
// the sessions in which statements run. No other package calls the engine's transitions.
//
// # A statement
//
// Store.call bounds every call of the engine by a TTL, and interprets its error: a call that met
// its bound is an outage, one whose context ended is the caller's. A transition that serves waiters
// (Session.Do, Session.Release) delivers the grants to those of this client. If the answer is lost,
// the waiters of the name are read instead.
//
// # Failures
//
// Retry and Tries repeat a call by a Policy. The kind of the error alone decides which policies
// repeat it, and which Residue the failed request may have left in the database. A test holds this
// table:
//
//	failure                          repeated       residue
//	ErrRetry                         always         nothing
//	ErrBusy                          always         nothing
//	ErrUnavailable                   in an outage   unsure
//	ErrReadOnly                      in an outage   nothing
//	ErrDenied, after another answer  in an outage   nothing
//	ErrDenied, as the first answer   never          nothing
//	ErrInDoubt, with ErrRetry        always         unsure
//	ErrRefused                       never          nothing
//	ErrNotHeld                       never          nothing
//	ErrNotAcquired                   never          nothing
//	no answer within a TTL           in an outage   unsure
//	the end of the context           never          unsure
//	any other error                  never          unsure
//
// An answer without an effect (transaction.ErrUnproven) is ErrRetry, for 20 tries in a row.
//
// An outage is repeated for a TTL. ErrReadOnly is an outage only to a client that has had a
// session: a failover has left it at a server that accepts no writes.
//
// # Close
//
// Close ends three contexts one after the other: Background when it begins, Answering a second
// later, Tidying when its own work is done or its time has passed. Calls that wait end with the
// first, statements in flight with the second, the rest with the third.
package store
