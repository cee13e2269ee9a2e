//go:build unix

package fault

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/reaper"
)

// churning is for how long processes are killed.
const churning = 6 * time.Second

func churn(w *world) {
	// Many: each kill keeps some of them for a TTL.
	var names []string
	for c := 'a'; c < 'k'; c++ {
		names = append(names, "churn "+string(c))
	}
	all := append(slices.Clone(names), "read churn", "permits churn")
	w.resource(all...)
	random := rand.New(rand.NewPCG(w.seed, 0)) // other scenarios are played beside it
	var actors []*process
	start := func() *process {
		p := w.actor(fmt.Sprintf("actor %d", len(actors)), func(c *actorConfig) {
			c.Seed, c.Reaper = random.Uint64(),
				len(actors)%2 == 0
		})
		p.work(modeLoad, 3, all...)
		actors = append(actors, p)
		return p
	}
	running := []*process{start(), start(), start(), start()}
	for end := session.Boottime() + churning; session.Boottime() < end; {
		pass(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
		i := random.IntN(len(running))
		running[i].kill()
		running[i] = start()
	}
	for _, p := range running {
		p.kill()
	}
	w.allFree(all)
	w.nothingIsLeft()
	w.exclusive(actors...)
	w.exact(names, actors...)
}

// allFree takes each name with a new client, which waits only for holders that have died.
func (w *world) allFree(names []string) {
	w.Helper()
	backend, closePool, err := openEngine(w.db.Kind, w.db.DSN)
	require.NoError(w, err)
	defer closePool()
	client, err := dblock.New(fakedb.On[any](backend), dblock.WithTTL(ttl), dblock.WithoutReaper(),
		dblock.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(w, err)
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for _, name := range names {
		l, err := client.Lock(ctx, name)
		require.NoError(w, err)
		if err := l.Unlock(ctx); err != nil && !starvation(err.Error()) {
			w.Error(err)
		}
	}
	assert.NoError(w, client.Close(ctx))
}

// nothingIsLeft sweeps once the leases of the dead are over, and looks for rows without an owner.
func (w *world) nothingIsLeft() {
	w.Helper()
	backend, closePool, err := openEngine(w.db.Kind, w.db.DSN)
	require.NoError(w, err)
	defer closePool()
	var left string
	clean := within(patience, func() bool {
		// On MySQL, LockTx keeps a row from the purge for minutes to come.
		_, _ = w.sql.ExecContext(w.Context(), "UPDATE dblock_locks SET acquired_at = 0 WHERE acquired_at > "+w.now())
		report, err := reaper.Sweep(w.Context(), fakedb.On[any](backend), reaper.Retention(0),
			reaper.Logger(slog.New(slog.DiscardHandler)))
		require.NoError(w, err)
		if !report.Zero() {
			w.Log(report)
		}
		left = ""
		for _, table := range []string{"dblock_waiters", "dblock_shares", "dblock_locks", "dblock_heartbeats",
			"dblock_sessions"} {
			if n := w.count("SELECT count(*) FROM %s", table); n != 0 {
				left += fmt.Sprintf(" %s: %d", table, n)
			}
		}
		return left == ""
	})
	if !clean {
		w.Errorf("left after a sweep:%s", left)
	}
}
