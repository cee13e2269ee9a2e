// Package clusters kills, stops and switches over the servers of a cluster under clients of dblock,
// and judges what these believed and wrote. It has tests only. scripts/soak clusters runs them.
//
// A cluster has three nodes on this machine, from the programs that are in PATH. They end with the
// test.
//
// # Clients
//
// Several clients, each with a pool of its own, take locks on a few names. Each hold reads a
// counter, adds one and writes it back, in a transaction with Guard where the cluster allows that.
// A client reaches the cluster as an application does: through HAProxy, through PgBouncer, with all
// hosts in its data source, or through a door that leads to a node that accepts writes, as MySQL's
// router does. Beside them a probe writes a row every 50 ms, so that what the cluster's outage was
// is known, and what dblock added.
//
// # Belief
//
// A hold is believed in from when Lock returned until its context was last seen alive, with the
// clock read before the look. All clients are in one process, and have one clock.
package clusters
