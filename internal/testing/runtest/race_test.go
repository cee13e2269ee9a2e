//go:build race

package runtest

// defaultSteps is how many steps all worlds have together where nothing else is said: a twentieth
// of what it is without the race detector, which makes them slower. scripts/soak takes more.
const defaultSteps = 50_000
