package ledger

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var quiet = outage.New(slog.New(slog.DiscardHandler), "")

// client is the client of a ledger.
type client struct {
	ended  func(c *Claim, e Ending)
	gaveUp func(queued bool, cause error) error
}

func (c *client) Ended(claim *Claim, e Ending) {
	if c.ended != nil {
		c.ended(claim, e)
	}
}

func (c *client) Breakers(context.Context, []*Claim) map[*Claim]error { return nil }

func (c *client) GaveUp(_ *store.Session, _ string, queued bool, _ time.Duration, cause error) error {
	return c.gaveUp(queued, cause)
}

func (*client) Deadlocked(deadlock.Cycle) error { return errCycle }

var errCycle = errors.New("a cycle")

// newLedger makes a ledger that fails the test where a state cannot be.
func newLedger(t testing.TB, now clock.Clock) *Ledger {
	log := testlog.New(io.Discard, t.Error)
	return New(Config{
		TTL: time.Minute, Clock: now, Log: log, Client: &client{},
		Store: store.New(nil, store.Config{TTL: time.Minute, Clock: now, Log: log}),
	})
}

// granted makes a claim of name n that the database has given to an attempt, and that is not held
// yet.
func granted(l *Ledger, in *store.Session, attempt string, g protocol.Grant) *Claim {
	c := l.Request(in, &protocol.Request{Name: "n", Attempt: attempt}, Owner{})
	l.Allow(c.Grant, g, 0)
	return c
}

// held is a claim that is held.
func held(t *testing.T, l *Ledger, in *store.Session, attempt string, g protocol.Grant) *Claim {
	c := granted(l, in, attempt, g)
	if !l.Hold(t.Context(), c) {
		t.Fatal("it is not held")
	}
	return c
}

// ttl is so long that only the test looks at the clock while it runs.
const ttl = 24 * time.Hour

// aliveSession is a session until the test ends.
func aliveSession(t *testing.T, c clock.Clock) *store.Session {
	s, err := session.Open(t.Context(), fakedb.Silent(), session.Config{
		TTL: ttl, Clock: c, Beating: quiet, Connecting: quiet, Client: asleep{},
	})
	require.NoError(t, err)
	t.Cleanup(func() { s.Stop(contract.ErrClosed) })
	return &store.Session{Session: s}
}
