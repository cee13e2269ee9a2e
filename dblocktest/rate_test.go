package dblocktest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

// Permits that nobody unlocks are a rate limit, and no trouble that the log tells of.
func TestPermitsThatRunOutAreARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, calls = 20, 70
		var said bytes.Buffer
		ends := make(chan observe.HoldResult, calls)
		f := dblocktest.New[*Tx](t, dblock.WithLogger(slog.New(slog.NewTextHandler(&said, nil))),
			dblock.WithObserver(observe.Observer{HoldEnd: func(r observe.HoldResult) { ends <- r }}))
		began := time.Now()
		for i := range calls {
			l, err := f.Client.Lock(t.Context(), "api", dblock.Permits(1, rate), dblock.Lease(time.Second))
			require.NoError(t, err)
			earliest := time.Duration(i/rate) * time.Second
			if at := time.Since(began); at < earliest || at > earliest+earliest/100 {
				t.Errorf("call %d began at %v", i, at)
			}
			if i == 0 {
				defer context.AfterFunc(l.Context(), func() {
					if err := context.Cause(l.Context()); !errors.Is(err, dblock.ErrLost) ||
						time.Since(began) > time.Second {
						t.Errorf("a permit ended with %v after %v", err, time.Since(began))
					}
				})()
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		close(ends)
		told := 0
		for r := range ends {
			if told++; observe.Outcome(r.Err) != "expired" || !errors.Is(r.Err, dblock.ErrLost) ||
				r.Held > time.Second {
				t.Errorf("%+v", r)
			}
		}
		if told != calls || said.Len() > 0 {
			t.Errorf("%d ends were told of, and logged was %q", told, said.String())
		}
	})
}
