package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/postgres"
)

// connectionsSettle is how long listeners have to begin, and idle connections to end.
const connectionsSettle = time.Second

// BenchmarkConnections is the connections on the server of some processes: while each of them holds
// a lock, and while all but one wait for one as well. Their pools have no idle connections then. On
// PostgreSQL the same is counted behind a PgBouncer that lends connections for transactions, past
// which the processes that wait listen (postgres.Listen).
func BenchmarkConnections(b *testing.B) {
	eachSize(b, "processes", []int{4, 16, 48}, nil, func(b *testing.B, k kind, n int) {
		if k.engine == migrate.SQLite {
			b.Skip("no server")
		}
		d := k.create(b)
		countConnections(b, d, n, "", func(a *app) (client, error) { return a.client() })
		if k.engine != migrate.Postgres {
			return
		}
		direct := dbtest.Database{Kind: dbtest.KindPostgres, DSN: d.dsn}
		d.dsn = direct.PgBouncer(b, dbtest.PoolTransactions).DSN
		countConnections(b, d, n, "pooled-", func(a *app) (client, error) {
			return newClient(postgres.New(a.pgx, postgres.Listen(direct.DSN)), nil)
		})
	})
}

// countConnections reports the connections of n processes, and the server's memory for each. open
// opens the client of a process.
func countConnections(b *testing.B, d database, n int, prefix string, open func(a *app) (client, error)) {
	m := newMeter(b, d.mustOpen(b, 1, nil))
	time.Sleep(connectionsSettle)
	before, memory := d.connections(b, m.app), m.memory()
	apps, clients := make([]*app, n), make([]client, n)
	ctx, cancel := context.WithCancel(b.Context())
	for i := range n {
		apps[i] = d.mustOpen(b, 8, nil)
		defer apps[i].close()
		c, err := open(apps[i])
		require.NoError(b, err)
		defer func() { assert.NoError(b, c.Close(context.Background())) }()
		require.NoError(b, require.ErrOf(c.lock(ctx, fmt.Sprintf("own/%d", i))))
		clients[i] = c
	}
	var waiting sync.WaitGroup
	defer func() { cancel(); waiting.Wait() }() // before the clients are closed
	count := func() int {
		for _, a := range apps {
			a.rest()
		}
		time.Sleep(connectionsSettle)
		return d.connections(b, m.app) - before
	}
	b.ReportMetric(float64(count()), prefix+"holding-conns")
	require.NoError(b, require.ErrOf(clients[0].lock(ctx, "busy")))
	for _, c := range clients[1:] {
		waiting.Go(func() { assert.ErrorIs(b, assert.ErrOf(c.lock(ctx, "busy")), context.Canceled) })
	}
	queued(b, m.app, n-1)
	time.Sleep(connectionsSettle)
	conns := count()
	b.ReportMetric(float64(conns), prefix+"waiting-conns")
	if prefix == "" && m.knowsCPU() {
		b.ReportMetric(float64(m.memory()-memory)/float64(conns)/1000, "kB/conn")
	}
}
