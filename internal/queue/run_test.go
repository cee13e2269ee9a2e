package queue

import (
	"slices"
	"testing"

	"github.com/dblock-go/dblock/driver"
)

func TestARunEndsBeforeTheFirstPlaceThatIsNotOfIt(t *testing.T) {
	own := Place{Session: "s", Passable: true}
	other := Place{Session: "x", Passable: true}
	alone := Place{Session: "s"}
	shares := Place{Session: "s", Units: 1, Passable: true}
	for name, c := range map[string]struct {
		first  Place
		behind []Place
		want   int
	}{
		"nobody behind":       {own, nil, 0},
		"all":                 {own, []Place{own, own}, 2},
		"another session":     {own, []Place{own, other, own}, 1},
		"one that is alone":   {own, []Place{alone, own}, 0},
		"one that shares":     {own, []Place{own, shares, own}, 1},
		"the first is alone":  {alone, []Place{alone, own}, 0},
		"the first shares":    {shares, []Place{shares}, 0},
		"as many as there be": {own, slices.Repeat([]Place{own}, driver.MaxRun-1), driver.MaxRun - 1},
		"more than that":      {own, slices.Repeat([]Place{own}, driver.MaxRun), driver.MaxRun - 1},
	} {
		if n := Members(c.first, c.behind); n != c.want {
			t.Errorf("%s: %d members, want %d", name, n, c.want)
		}
	}
}
