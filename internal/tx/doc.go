// Package tx is what a client does inside the application's transactions: Guard, UnlockTx and
// LockTx. The transaction stays the application's: the package never ends it, never retries in it,
// and never passes it a context that ends while it goes on.
//
// # Flow
//
// Each step of a call sends its statement in the transaction (Tx), in a transaction of dblock's own
// (the side connection), or is the client's. A test compares the steps of this table with the code:
//
//	Guard of a new hold              MakeGuard, Guard
//	Guard of a guarded hold          Guard
//	UnlockTx                         Release
//	LockTx of a free name            Lock
//	LockTx behind a lease            Lock, Acquire, Lock, Leave
//	LockTx that finds another lease  Lock, Acquire, Lock, Abandon, Lock
//	TryLockTx behind a lease         Lock, Refuse
//
// LockTx locks the name's row if no lease is in the way. Otherwise it waits in the queue for a
// lease of its own (Acquire), which keeps other clients behind it, and then locks the row. The
// lease stands behind the transaction, and is released (Leave) once that has ended. If another
// lease has come in between, LockTx abandons its lease, and begins again.
//
// UnlockTx takes the hold out of what the client relies on before its statement is sent. Package
// ledger has the states after that.
package tx
