// Package tx works inside the application's transactions: Guard, UnlockTx and LockTx. The
// transaction stays the application's: the package never ends it, never retries in it, and never
// passes it a context that may end before it.
//
// # Flow
//
// Each step of a call is a statement in the transaction (Tx), a statement in a transaction of
// dblock's own (the side connection), or a call of the client. A test compares the steps of this
// table with the code:
//
//	Guard of a new hold              MakeGuard, Guard
//	Guard of a guarded hold          Guard
//	UnlockTx                         Release
//	LockTx of a free name            Lock
//	LockTx behind a lease            Lock, Acquire, Lock, Return
//	LockTx that finds another lease  Lock, Acquire, Lock, Return, Lock
//	TryLockTx behind a lease         Lock, Refuse
//
// LockTx locks the name's row if no lease is in the way. Otherwise it waits in the queue for a
// lease of its own (Acquire), which keeps other clients behind it, and then locks the row. The
// lease is kept for the transaction, and is released (Return) once that has ended. If another lease
// was granted in between, LockTx releases its own lease in the background, and begins again.
//
// UnlockTx takes the lock from those that the client relies on, before its statement is sent.
// Package ledger has the states after that.
package tx
