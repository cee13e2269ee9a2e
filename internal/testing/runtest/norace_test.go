//go:build !race

package runtest

// defaultSteps is how many steps all worlds have together where nothing else is said.
const defaultSteps = 1_000_000
