package runtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// cohorts are how many of several members the worlds have seen.
var cohorts int

// stepsPerWorld is how long a world goes on before it is let come to its end.
const stepsPerWorld = 500

// bug is what is wrong with the tables, to see that the judge notices.
type bug int

const (
	noBug bug = iota
	takesWhatIsHeld
	newestFirst
	repeatsTokens
	keepsLocks
	ignoresGuards
	resumesTwice
	resumesLate
)

// number is a variable of the environment.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, variable)
	return n
}

// watch ends the test where a world stands still: a goroutine waits for a mutex, which the bubble
// does not take for blocked.
func watch(t *testing.T, seed *atomic.Uint64) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for last := uint64(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(30 * time.Second):
			}
			if now := seed.Load(); now == last {
				debug.SetTraceback("all")
				panic(fmt.Sprintf("the world of DBLOCK_SEED=%d stands still", now))
			} else {
				last = now
			}
		}
	}()
}

// play plays worlds until one goes wrong, and returns what it says, or "".
func play(t *testing.T, seed uint64, steps int, b bug) (bad string, made int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that a seed is played the same way again, as far as possible
	var now atomic.Uint64
	watch(t, &now)
	for ; made < steps && bad == ""; seed++ {
		now.Store(seed)
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed, b)
			if wrong := w.play(stepsPerWorld); wrong != "" {
				bad = fmt.Sprintf("%s\nDBLOCK_SEED=%d\n%s", wrong, seed, w.history())
			}
			made += w.steps
			cohorts += len(w.journal.cohorts)
		})
	}
	return bad, made
}

func TestClientsKeepThePromisesWhateverHappensBetweenThemAndTheDatabase(t *testing.T) {
	seed := number(t, "DBLOCK_SEED", rand.Uint64())
	steps := int(number(t, "DBLOCK_TEST_STEPS", defaultSteps))
	if os.Getenv("DBLOCK_SEED") != "" && os.Getenv("DBLOCK_TEST_STEPS") == "" {
		steps = 1
	}
	began := time.Now()
	bad, made := play(t, seed, steps, noBug)
	t.Logf("%d steps with %d cohorts in %v, from DBLOCK_SEED=%d", made, cohorts,
		time.Since(began).Round(time.Millisecond), seed)
	require.Equal(t, bad, "")
}

func TestTheJudgeNoticesATableThatIsWrong(t *testing.T) {
	for b, wrong := range map[bug]struct{ name, says string }{
		takesWhatIsHeld: {"takes what is held", "both have|the row says otherwise|granted the name again"},
		newestFirst:     {"serves the newest first", "is granted before ticket"},
		repeatsTokens:   {"grants a token twice", "is granted twice"},
		ignoresGuards:   {"takes a hold from a guarded transaction", "that was guarded with token"},
		resumesTwice: {"lets two resume a lock", "both have|is transferred|the second time|it was lost|" +
			"not granted to it"},
		resumesLate: {"lets a lock be resumed when its time is over", "from a session that is over"},
		keepsLocks:  {"keeps a lock that is given back", "not every call has returned|there is left"},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			bad, made := play(t, 1, 400_000, b)
			t.Logf("after %d steps: %s", made, strings.SplitN(bad, "\n", 2)[0])
			if !regexp.MustCompile(wrong.says).MatchString(bad) {
				t.Error("another thing was found, or nothing")
			}
		})
	}
}
