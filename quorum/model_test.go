package quorum

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// modelSchedules is how many schedules run by default. DBLOCK_TEST_SCHEDULES sets another number.
const modelSchedules = 60

func schedules(t *testing.T) int {
	if text := os.Getenv("DBLOCK_TEST_SCHEDULES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return modelSchedules
}

func TestTokensRiseAndNobodyHoldsBesideAnother(t *testing.T) {
	first := uint64(time.Now().UnixNano())
	var got, crashes int
	for i := range schedules(t) {
		w := play(t, first+uint64(i), bugs{})
		if len(w.faults) > 0 {
			t.Fatalf("seed %d: %v\n%s", first+uint64(i), w.faults, w.story())
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
