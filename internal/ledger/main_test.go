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
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var (
	errDisowned = errors.New("another has it")
	quiet       = outage.New(slog.New(slog.DiscardHandler), "")
)

// newLedger makes a ledger that fails the test where a state cannot be.
func newLedger(t testing.TB, now clock.Clock) *Ledger {
	return New(Config{
		TTL: time.Minute, Clock: now, Log: testlog.New(io.Discard, t.Error), Calls: store.NewCalls(),
		Ended: func(*Hold, Ending) {},
	})
}

// newHold makes a hold of name n and attempt a, or of another one, that is not entered yet.
func newHold(t testing.TB, l *Ledger, in *store.Session, attempt string, g driver.Grant) *Hold {
	k := l.Request("n", attempt)
	return l.NewHold(t.Context(), in, k, &driver.Request{Name: "n"}, Owner{}, g, nil)
}

// silent is a database that answers nothing after a session was opened.
type silent struct{}

func (silent) OpenSession(context.Context, driver.Session) error { return nil }

func (silent) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Beat(ctx context.Context, _ string, _ time.Duration) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func (silent) OnSideConn(ctx context.Context, _ func(context.Context, driver.Upkeep) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// ttl: nobody but the test looks at the clock while it runs.
const ttl = 24 * time.Hour

// aliveSession is a session until the test ends.
func aliveSession(t *testing.T, c clock.Clock) *store.Session {
	s, err := session.Open(t.Context(), silent{}, session.Config{TTL: ttl, Clock: c, Beating: quiet, Connecting: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { s.Stop(contract.ErrClosed) })
	return &store.Session{Session: s}
}
