// Package check holds the dashboard and the alert rules of package dblockprom against its metrics,
// with the parser and the engine of Prometheus. It is a module of its own: who imports dblockprom
// does not get Prometheus.
package check
