package ledger

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
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
func newHold(t testing.TB, l *Ledger, in *store.Session, attempt string, g protocol.Grant) *Hold {
	k := l.Request("n", attempt)
	return l.NewHold(t.Context(), in, k, &protocol.Request{Name: "n"}, Owner{}, g, nil)
}

// ttl is so long that only the test looks at the clock while it runs.
const ttl = 24 * time.Hour

// aliveSession is a session until the test ends.
func aliveSession(t *testing.T, c clock.Clock) *store.Session {
	s, err := session.Open(t.Context(), fakedb.Silent(), session.Config{
		TTL: ttl, Clock: c, Beating: quiet, Connecting: quiet,
	})
	require.NoError(t, err)
	t.Cleanup(func() { s.Stop(contract.ErrClosed) })
	return &store.Session{Session: s}
}
