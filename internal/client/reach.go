package client

// The other packages of this module reach by these what a client and a lock have beyond the public
// page. Package dblock sets them. The client is a *dblock.Client, and the lock a *dblock.Lock, of
// any type of transactions.
var (
	Of     func(client any) *Client
	LockOf func(lock any) *Lock
)
