package quorum

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/postgres"
)

// BenchmarkContention has clients contend for a name over three PostgreSQL databases. One of them
// is on a server of its own, which is stopped with SIGSTOP, or killed: go test -run '^$' -bench
// Contention -benchtime 1x ./quorum
func BenchmarkContention(b *testing.B) {
	own := dbtest.OwnPostgres(b)
	databases := []dbtest.Database{dbtest.Postgres(b), dbtest.Postgres(b), own.Database(b)}
	for _, db := range databases {
		if _, err := db.SQL(b).Exec("INSERT INTO dblock_incarnation (one, since, token_floor) VALUES (1, 1, 1)"); err != nil {
			b.Fatal(err)
		}
	}
	var clients []*Client
	for range 6 {
		nodes := make([]Node, len(databases))
		for i, db := range databases {
			client, err := dblock.New(postgres.New(db.Pool(b)), dblock.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { shut(client.Close) })
			nodes[i] = On(client)
		}
		c, err := New(nodes, WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { shut(c.Close) })
		for { // connects
			l, err := c.Lock(b.Context(), "n")
			if err != nil && !errors.Is(err, dblock.ErrUnavailable) {
				b.Fatal(err)
			}
			if err == nil {
				_ = l.Unlock(b.Context())
				break
			}
		}
		clients = append(clients, c)
	}
	for _, state := range []struct {
		name   string
		change func()
	}{{"well", func() {}}, {"hangs", own.Pause}, {"dead", func() { own.Resume(); own.Kill() }}} {
		state.change()
		for _, contenders := range []int{2, 6} {
			b.Run(state.name+"/"+strconv.Itoa(contenders), func(b *testing.B) {
				var got, failed int64
				for range b.N {
					g, f := contend(clients[:contenders])
					got, failed = got+g, failed+f
				}
				b.ReportMetric(float64(got)/float64(b.N), "locks/8s")
				b.ReportMetric(float64(failed)/float64(b.N), "failures/8s")
			})
		}
	}
}

// shut closes a client that may have lost its database.
func shut(closing func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = closing(ctx)
}
