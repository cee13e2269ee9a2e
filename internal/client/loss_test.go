package client

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/testlog"
	"github.com/dblock-go/dblock/observe"
)

// Broken by holds that end one by one, with what follows in between: code that is slow, and waits
// for others, keeps the contexts of the rest open beyond the deadline.
func TestAllContextsEndBeforeAnythingFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks []*Lock
		told := 0
		c := newPaperClient(t, newPaper(), nil)
		c.report.observer = &observe.Observer{HoldEnd: func(r observe.HoldResult) { // without a queue
			told++
			for _, l := range locks {
				if l.Context().Err() == nil {
					t.Errorf("%s is live when %s is told of", l.Name(), r.Name)
				}
			}
		}}
		for i := range 20 {
			locks = append(locks, acquire(t, t.Context(), c, fmt.Sprint(i)))
		}
		if c.ledger.LoseSession(c.sessions.Last()); told != len(locks) {
			t.Errorf("%d of %d are told of", told, len(locks))
		}
	})
}

// Broken by a deadline that waits for a line of the log, and by a Close that waits for the last one
// for ever.
func TestContextsEndAtTheDeadlineBesideALoggerThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		p, d := newPaper(), &diary{}
		c := newPaperClient(t, p, func(c *Config) { c.Log, c.Observer = testlog.Stuck(end), d.observer() })
		var locks []*Lock
		for i := range 20 {
			locks = append(locks, acquire(t, t.Context(), c, fmt.Sprint(i)))
		}
		time.Sleep(c.TTL()) // heartbeats go on
		p.leave()
		until := locks[0].Until()
		for _, l := range locks {
			<-l.Context().Done()
		}
		if late := time.Since(until); late > time.Second {
			t.Errorf("the last context ended %v late", late)
		}
		p.comeBack()
		if l := acquire(t, t.Context(), c, "next"); l.Token() == 0 {
			t.Error("it has no token")
		}
		if got := d.told(); len(got) < 3*len(locks) {
			t.Errorf("the observer waits for the logger: it was told %q", got)
		}
		began := time.Now()
		assert.NoError(t, c.Close(context.Background()))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
