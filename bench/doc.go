// Package bench measures dblock: each benchmark runs beside its reference, in turns within the same
// run, so that what else the machine does hits both. The ratios are what carries over to another
// machine; the rest are figures.
//
// There is nothing in it but benchmarks. Script run starts durable servers where it finds how to,
// or takes DSNs from the environment, runs everything once, prints the table of README.md (command
// table) and draws its plots (command plot).
package bench
