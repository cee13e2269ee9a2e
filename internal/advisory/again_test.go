package advisory

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/sessionlock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by sending the release a second time: by then the lock is another holder's, on the same
// connection.
func TestToReleaseAnAdvisoryLockAgainFreesNobodyElses(t *testing.T) {
	pool := dbtest.Postgres(t).Pool(t)
	config := sessionlock.Config{TTL: time.Minute, Log: slog.Default()}
	a, _ := open(pool, config)
	b, _ := open(pool, config)
	t.Cleanup(func() {
		for _, k := range []interface{ Close(context.Context) error }{a, b} {
			_ = k.Close(context.Background())
		}
	})
	first, _, err := a.Acquire(t.Context(), "n", false, true)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Release(ended) // it may or may not hear the answer
	if _, _, err := a.Acquire(t.Context(), "n", false, true); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, first.Release(t.Context()))
	if _, got, err := b.Acquire(t.Context(), "n", false, false); got || err != nil {
		t.Errorf("another client got a lock that is held: %v, %v", got, err)
	}
}
