// Package tfstate keeps the states of Terraform and OpenTofu, and their locks, in the database that
// an application already has. Handler is an http.Handler for the backend "http" of both programs.
//
//	handler, err := tfstate.New(client, db, migrate.Postgres)
//	…
//	http.Handle("/states/", http.StripPrefix("/states/", authenticated(handler)))
//
// A configuration names the same address three times. Each path is one state:
//
//	terraform {
//		backend "http" {
//			address        = "https://ops.example.com/states/prod/network"
//			lock_address   = "https://ops.example.com/states/prod/network"
//			unlock_address = "https://ops.example.com/states/prod/network"
//		}
//	}
//
// Any number of processes may serve the same states. A lock of one is released by another. With the
// addresses and methods of GitLab, ".../network/lock", POST and DELETE, the same lock is meant. For
// all other methods, and for POST of a state, that is the address of another state, whose path ends
// in "/lock". DELETE never removes that state.
//
// # Locks
//
// The lock of a state is a lock of dblock, with the name that function Name returns. It is detached
// (dblock.Lock.Detach), so that it outlives the request and the process that took it. Package
// inspect, the page and "dblock ls" show it, with the LockInfo that Terraform has sent as its
// metadata. Terraform sends no heartbeats. So the lock of a run that died stays until "terraform
// force-unlock", "dblock break", or the end of its time (option Expiry).
//
// An application that holds the lock (client.Lock with Name) keeps Terraform out. Its holder is
// reported as a LockInfo, too. OpenTofu prints the LockInfo of the holder, Terraform only its ID.
//
// # Fencing
//
// A state's row has the token of the last lock. A new lock raises it before LOCK is answered, and
// the statement that writes a state compares it. A late write of a run is refused after its lock
// was broken, released by force or has expired: it never overwrites a newer state. That run saves
// its state in the file errored.tfstate. A run without locking (no lock_address, or -lock=false)
// may write while nobody holds the lock, and then its write takes the lock for a moment.
//
// # Answers
//
//	GET           200 with the state and its Content-MD5; 204: there is none
//	LOCK          200; the same ID again: 200; 423 with the LockInfo of the holder
//	POST or PUT   200; 423 with the LockInfo of another holder; 409: the lock of this ID is gone;
//	              400: the body is no state
//	DELETE        as POST; 400 without the ID of a lock: a state is removed under its lock alone
//	UNLOCK        200, also if there is no lock; 423 with the LockInfo of another holder
//	any           400 (also for a query with more than an ID), 403 (for a page of another origin),
//	              413 (option MaxState), 500, and 503 (the database is away, or another request is
//	              locking or unlocking the state); Terraform retries the last two
//
// UNLOCK without a body releases the lock of any run: Terraform's force-unlock sends none, and
// compares no ID. OpenTofu's sends the ID.
//
// # Limits
//
// The handler authenticates no caller, and every caller may read and unlock every state: put it
// behind the middleware that decides that. A state contains secrets, as text, in the table
// dblock_states (OpenTofu can encrypt it). Workspaces need an address each. Older states are not
// kept: they are in the backups of the database.
//
// The table is made by the text of Schema, which the owner of the tables runs once. The application
// needs SELECT, INSERT and UPDATE on it.
package tfstate
