package queue

import "github.com/dblock-go/dblock/driver"

// Place is what decides whether a waiter is granted a name as a member of a run.
type Place struct {
	Session  string
	Units    int // 0: the whole name
	Passable bool
}

// Members is how many of the places right behind the first are granted the whole name with it, as
// one run. Nothing in between is passed over: a run ends before the first place that is not of it.
func Members(first Place, behind []Place) int {
	if !first.Passable || first.Units > 0 {
		return 0
	}
	for n, next := range behind {
		if next != first || n == driver.MaxRun-1 {
			return n
		}
	}
	return len(behind)
}
