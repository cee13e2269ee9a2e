// Command peers measures dblock and other locks side by side, for docs/compared.md. Script run
// finds or unpacks the servers, starts them durable, and runs this command, which prints Markdown.
//
// A peer is a lock client over one server (peer.go and one file per system). A workload is one
// figure: a pair, goroutines on names of their own, processes and goroutines over one name, and the
// crash of a holder. All workloads see a peer as a locker: lock, unlock, close. Before a peer is
// measured, it must exclude: two clients count together under one lock (exclusion.go). Turns of one
// name must not overlap, or the peer has no figure (handoff.go).
//
// A crash is the SIGKILL of a holder for which another process waits (crash.go). A holder of dblock
// on another host is one without crash detection. redsync and redislock do not renew their keys,
// which expire a TTL after the grant.
package main
