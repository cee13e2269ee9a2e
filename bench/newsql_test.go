package bench

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
)

// BenchmarkNewSQL is a hand-off between two clients with a pool each: over database/sql
// (postgres.NewSQL with pgx's stdlib), against postgres.New, in turns. Pools of 3, which are too
// small to listen through, are what polling takes.
func BenchmarkNewSQL(b *testing.B) {
	each(b, func(b *testing.B, k kind) {
		if k.engine != migrate.Postgres {
			b.Skip("not measured there")
		}
		d := k.create(b)
		a := d.mustOpen(b, 8, nil)
		pgx := &duel{name: "pgx", clients: [2]client{a.mustClient(b), d.mustOpen(b, 8, nil).mustClient(b)}}
		listening := &duel{name: "sql", clients: [2]client{d.mustSQLClient(b, 8), d.mustSQLClient(b, 8)}}
		polling := &duel{name: "polled", clients: [2]client{d.mustSQLClient(b, 3), d.mustSQLClient(b, 3)}}
		duels := []*duel{pgx, listening, polling}
		for range 4 { // connected, statements prepared
			for _, r := range duels {
				r.handOff(b, a)
				r.times = nil
			}
		}
		for b.Loop() {
			for _, r := range duels {
				r.handOff(b, a)
			}
		}
		b.ReportMetric(0, "ns/op")
		reference := quantile(pgx.times, 0.5)
		for _, r := range duels {
			b.ReportMetric(float64(quantile(r.times, 0.5))/float64(reference), r.name+"-p50-ratio")
			b.ReportMetric(micros(quantile(r.times, 0.5)), r.name+"-p50-µs")
			b.ReportMetric(micros(quantile(r.times, 0.99)), r.name+"-p99-µs")
		}
	})
}

func (d database) mustSQLClient(b testing.TB, conns int) client {
	b.Helper()
	db, err := sql.Open(d.driver, d.dsn)
	require.NoError(b, err)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	b.Cleanup(func() { _ = db.Close() })
	c, err := newClient(postgres.NewSQL(db), nil)
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, c.Close(context.Background())) })
	return c
}

// duel is two clients that give a name to each other.
type duel struct {
	name    string
	clients [2]client
	times   []time.Duration
}

// handOff measures the time from the call of Unlock in one client to the return of Lock in the
// other, which is in the queue by then.
func (r *duel) handOff(b *testing.B, a *app) {
	held, err := r.clients[0].lock(b.Context(), r.name)
	require.NoError(b, err)
	granted := make(chan time.Time, 1)
	go func() {
		l, err := r.clients[1].lock(b.Context(), r.name)
		granted <- time.Now()
		if err == nil {
			err = l.Unlock(b.Context())
		}
		assert.NoError(b, err)
		granted <- time.Time{}
	}()
	queued(b, a, 1)
	unlocked := time.Now()
	require.NoError(b, held.Unlock(b.Context()))
	r.times = append(r.times, (<-granted).Sub(unlocked))
	<-granted
	r.clients[0], r.clients[1] = r.clients[1], r.clients[0]
}
