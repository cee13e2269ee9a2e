package outage_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// Broken by a line for each failure, and by silence after the first one.
func TestAnOutageIsReportedAtGrowingIntervalsAndItsEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string,
			a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		r := outage.New(log, "work")
		r.Worked()
		for range 2 {
			for range 10 * 75 { // 75 s
				r.Failed(errors.New("trouble"), "waiting", 1)
				time.Sleep(100 * time.Millisecond)
			}
			r.Worked("lost", 2)
			r.Worked()
			time.Sleep(10 * time.Second) // long enough for the next to be another
		}
		one := `level=WARN msg="work fails" waiting=1 error=trouble
level=WARN msg="work fails" for=10s failures=101 waiting=1 error=trouble
level=WARN msg="work fails" for=30s failures=301 waiting=1 error=trouble
level=WARN msg="work fails" for=1m10s failures=701 waiting=1 error=trouble
level=INFO msg="work works again" after=1m15s failures=750 lost=2
`
		assert.Equal(t, lines.String(), one+one, "it says")
		lines.Reset()
		for range 60 * 60 { // an hour
			r.Failed(errors.New("trouble"))
			time.Sleep(time.Second)
		}
		// at 0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030 s
		if n := strings.Count(lines.String(), "\n"); n != 11 {
			t.Errorf("%d lines in an hour:\n%s", n, lines.String())
		}
	})
}

// Broken by two lines for each time that the work fails once.
func TestWorkThatFailsNowAndThenIsNoOutageEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		r := outage.New(slog.New(slog.NewTextHandler(&lines, nil)), "work")
		for range 100 { // 200 s
			r.Failed(errors.New("trouble"))
			time.Sleep(time.Second)
			r.Worked()
			time.Sleep(time.Second)
		}
		fails, works := strings.Count(lines.String(), "work fails"), strings.Count(lines.String(), "work works again")
		if fails != 5 || works != fails { // at 0, 10, 30, 70, 150 s
			t.Errorf("%d times it fails, and %d times it works again:\n%s", fails, works, lines.String())
		}
	})
}
