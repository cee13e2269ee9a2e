//go:build race

package runtest

// defaultSteps is how many steps all worlds have together where nothing else is said: a fifth of
// what it is without the race detector, which makes them slower.
const defaultSteps = 50_000
