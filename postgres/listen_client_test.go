package postgres

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// counted counts the looks at an engine, and the hints that are heard.
type counted struct{ looks, hints atomic.Int64 }

func (n *counted) hook(ctx context.Context, c *fakedb.Call) error {
	switch c.Method {
	case "Read":
		n.looks.Add(1)
	case "Listen":
		c.Hear = func(h protocol.Hint) protocol.Hint {
			n.hints.Add(1)
			return h
		}
	}
	return c.Do(ctx)
}

// logged keeps what is logged, at every level.
type logged struct {
	slog.Handler
	mu   sync.Mutex
	said []slog.Record
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, r)
	return nil
}

// levels are those of the lines with a text.
func (l *logged) levels(text string) (levels []slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.said {
		if strings.Contains(r.Message, text) {
			levels = append(levels, r.Level)
		}
	}
	return levels
}

// duo is two clients over database/sql that take turns, the second of which is counted.
type duo struct {
	*testing.T
	direct        *sql.DB
	first, second *dblock.Client[*sql.Tx]
	count         *counted
	log           *logged
}

func newDuo(t *testing.T, db dbtest.Database, pool *sql.DB) *duo {
	t.Helper()
	d := &duo{T: t, direct: db.SQL(t), log: &logged{}}
	open := func(engine dblock.Engine[*sql.Tx], log slog.Handler) *dblock.Client[*sql.Tx] {
		client, err := dblock.New(engine, dblock.WithLogger(slog.New(log)))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, client.Close(context.Background())) })
		return client
	}
	d.first = open(NewSQL(db.SQL(t)), slog.DiscardHandler)
	d.count = &counted{}
	d.second = open(fakedb.Through(NewSQL(pool), d.count.hook), d.log)
	return d
}

// handOff has the second client wait for the first, and returns how many looks it took from the
// release to the grant.
func (d *duo) handOff() (looks int64) {
	d.Helper()
	held, err := d.first.Lock(d.Context(), "n")
	require.NoError(d, err)
	got := make(chan int64, 1)
	go func() {
		l, err := d.second.Lock(d.Context(), "n")
		n := d.count.looks.Load()
		if err == nil {
			err = l.Unlock(d.Context())
		}
		assert.NoError(d, err)
		got <- n
	}()
	dbtest.Eventually(d.T, "a waiter", func() (is bool) {
		query := "SELECT count(*) = 1 FROM dblock_waiters"
		require.NoError(d, d.direct.QueryRowContext(d.Context(), query).Scan(&is))
		return is
	})
	before := d.count.looks.Load()
	require.NoError(d, held.Unlock(d.Context()))
	select {
	case n := <-got:
		return n - before
	case <-time.After(patience()):
		d.Fatal("no grant")
		return 0
	}
}

func TestAClientOverSQLHearsOfItsGrants(t *testing.T) {
	db := dbtest.Postgres(t)
	d := newDuo(t, db, limited(t, db.SQL(t), 3))
	const rounds = 20
	unseen := 0
	for range rounds {
		if d.handOff() == 0 {
			unseen++
		}
	}
	if unseen <= rounds/2 || d.count.hints.Load() < rounds {
		t.Errorf("%d of %d grants came without a look, with %d hints", unseen, rounds, d.count.hints.Load())
	}
	if n := len(d.log.levels("polling")); n != 0 {
		t.Errorf("it polls: %d logged", n)
	}
}

func TestAClientOverSQLSaysOnceWhyItPolls(t *testing.T) {
	db := dbtest.Postgres(t)
	d := newDuo(t, db, openWrapped(t, db, 4, hidden))
	looks := int64(0)
	for range 3 {
		looks += d.handOff() // one that was under way already counts for none
	}
	if looks == 0 {
		t.Error("grants came without a look")
	}
	if levels := d.log.levels("polling"); len(levels) != 1 || levels[0] != slog.LevelDebug {
		t.Errorf("logged at %v: want one line", levels)
	}
}
