package quorum

import (
	"flag"
	"testing"
	"time"
)

// scripts/soak runs more of them.
var (
	schedules = flag.Int("schedules", 20, "how many schedules TestTokensRise… runs")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the first schedule; each later one has the next")
)

func TestTokensRiseAndNobodyHoldsBesideAnother(t *testing.T) {
	var got, crashes int
	for i := range *schedules {
		w := play(t, *seed+uint64(i), bugs{})
		if len(w.faults) > 0 {
			t.Fatalf("seed %d: %v\n%s", *seed+uint64(i), w.faults, w.story())
		}
		got += w.got
		crashes += w.crashes
	}
	t.Logf("%d locks, %d crashes", got, crashes)
}

// Without any one of the rules the checker finds a fault. Random schedules seldom need the rule
// that a node learns the tokens: it has a test of its own.
func TestTheModelFindsWhatIsLeftOut(t *testing.T) {
	for name, b := range map[string]bugs{
		"the token is not told to the nodes":       {noWriteBack: true},
		"a node that lost its data counts at once": {noQuarantine: true},
	} {
		t.Run(name, func(t *testing.T) {
			first := uint64(time.Now().UnixNano())
			for i := range uint64(1000) {
				if w := play(t, first+i, b); len(w.faults) > 0 {
					t.Logf("after %d schedules: %v", i+1, w.faults[0])
					return
				}
			}
			t.Error("nothing was found")
		})
	}
}
