// Package bench measures dblock: each benchmark runs beside its reference, in turns within the same
// run, so that other load on the machine hits both. The ratios carry over to another machine; the
// rest are figures.
//
// It has nothing but benchmarks. Script run starts durable servers if it can, or takes DSNs from
// the environment, runs everything once, prints a table (command table) of which README.md has the
// main rows, and draws its plots (command plot). Script scale does the same with the benchmarks of
// what one server carries, for docs/scale.md (command growth).
package bench
