package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

const (
	fleetLines   = 8  // connections for the heartbeats of all clients
	fleetOpeners = 16 // clients that are opened at a time
	// fleetWindow is one TTL and one interval of the reapers: each client sends five heartbeats,
	// and sweeps once, as long as the clients were opened within 9 s.
	fleetWindow  = 15 * time.Second
	mostOnSQLite = 300
)

// BenchmarkFleet is up to 10,000 clients in one process, each with a session, a reaper and one held
// lock, and with the default settings. They differ from clients in processes of their own in one
// way: their heartbeats share a few connections. It measures their cost while they do nothing.
func BenchmarkFleet(b *testing.B) {
	eachSize(b, "clients", []int{100, 300, 1000, 3000}, []int{10_000}, func(b *testing.B, k kind, n int) {
		if k.engine == migrate.SQLite && n > mostOnSQLite {
			b.Skip("more heartbeats than a file takes")
		}
		d := k.create(b)
		count := newCounter()
		a, probe := d.mustOpen(b, 2*poolSize, count), d.mustOpen(b, 1, nil)
		probe.noAutovacuum(b)
		f := newFleet(b, a, n, count)
		time.Sleep(2 * time.Second) // until nothing of the opening goes on
		f.measure(b, newMeter(b, probe), count)
	})
}

// fleet is many clients of one engine.
type fleet struct {
	clients []client

	mu     sync.Mutex // protects what follows
	beats  []time.Duration
	failed int // heartbeats
}

// newFleet opens n clients, each of which takes a lock of its own.
func newFleet(b *testing.B, a *app, n int, count *counter) *fleet {
	b.Helper()
	lines := lineSharing{free: make(chan driver.Upkeep, fleetLines), saw: func(string) {}}
	var open func(options ...dblock.Option) (client, error)
	switch a.engine {
	case migrate.Postgres:
		lines.saw = count.saw // a tracer of pgx does not see what is sent over a reserved connection
		open = opener(postgres.New(a.pgx), lines)
	case migrate.MySQL:
		open = opener(mysql.New(a.db), lines)
	default:
		open = opener(sqlite.New(a.db), lines)
	}
	backend := a.backend()
	leave := backend.Attend("bench", time.Minute)
	for range fleetLines {
		up, err := backend.Upkeep(b.Context(), "bench")
		require.NoError(b, err)
		lines.free <- up
	}
	f := &fleet{clients: make([]client, n)}
	b.Cleanup(func() {
		var closing sync.WaitGroup
		for _, c := range f.clients {
			if c != nil { // it leaves its session, since the end of that would take longer than the benchmark
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				closing.Go(func() { defer cancel(); _ = c.Close(ctx) })
			}
		}
		closing.Wait()
		for range fleetLines {
			assert.NoError(b, (<-lines.free).Close())
		}
		leave()
	})
	require.NoError(b, f.each(func(i int) (err error) {
		if f.clients[i], err = open(dblock.WithObserver(observe.Observer{Heartbeat: f.beaten})); err != nil {
			return err
		}
		_, err = f.clients[i].lock(b.Context(), fmt.Sprintf("name/%d", i))
		return err
	}))
	return f
}

// opener returns a function that opens clients of one engine. Their sessions share the connections
// of lines.
func opener[TX any](e dblock.Engine[TX], lines lineSharing) func(options ...dblock.Option) (client, error) {
	lines.Backend = inside.Of(e).Backend
	return func(options ...dblock.Option) (client, error) { return newClient(fakedb.On[TX](lines), options) }
}

// measure measures what the clients cost, and then what VACUUM does after them.
func (f *fleet) measure(b *testing.B, m meter, count *counter) {
	n := len(f.clients)
	f.reset()
	count.reset()
	rows := m.rowsOfFleet(b)
	cpu, log, seconds := m.during(b, func() { time.Sleep(fleetWindow) })
	rows = m.rowsOfFleet(b) - rows
	all, _, words := count.reset()
	beats, failed := f.reset()
	b.Logf("%d clients: %d heartbeats, %d of them failed; %s", n, len(beats), failed, words)
	report := b.ReportMetric
	report(log/1000, "log-kB/s")
	if m.knowsCPU() {
		report(1000*cpu, "cpu-ms/s")
	}
	if m.engine != migrate.SQLite { // its statements are calls, many of them attempts
		report(float64(all)/seconds, "stmt/s")
		report(float64(rows)/seconds, "rows/s")
	}
	report(millis(quantile(beats, 0.5)), "beat-p50-ms")
	report(millis(quantile(beats, 0.99)), "beat-p99-ms")
	report((m.tableBytes(b, "dblock_heartbeats")+m.tableBytes(b, "dblock_sessions"))/1e6, "table-MB")
	m.vacuum(b, report)
}

// rowsOfFleet is rowsOfServer. On PostgreSQL it counts the updates of heartbeats alone: what the
// opening of the clients wrote is counted up to 10 s late.
func (m meter) rowsOfFleet(b *testing.B) int {
	if m.engine != migrate.Postgres {
		return m.rowsOfServer(b)
	}
	n, err := m.number(b.Context(), "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'dblock_heartbeats'")
	require.NoError(b, err)
	return n
}

// each calls do with the number of each client, for some at a time.
func (f *fleet) each(do func(i int) error) error {
	errs := make([]error, fleetOpeners)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			for i := g; i < len(f.clients) && errs[g] == nil; i += len(errs) {
				errs[g] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f *fleet) beaten(took time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.failed++
		return
	}
	f.beats = append(f.beats, took)
}

// reset forgets the heartbeats so far. It returns how long they took, and how many have failed.
func (f *fleet) reset() (beats []time.Duration, failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	beats, failed = f.beats, f.failed
	f.beats, f.failed = nil, 0
	return beats, failed
}

// lineSharing is an engine with sessions that share a few reserved connections. None of them
// listens.
type lineSharing struct {
	driver.Backend
	free chan driver.Upkeep
	saw  func(statement string) // is called with each statement over these connections
}

func (s lineSharing) Upkeep(context.Context, string) (driver.Upkeep, error) {
	return sharedLine(s), nil
}

// Attend does nothing: one attends for all of them, since each would count as keeping connections.
func (s lineSharing) Attend(string, time.Duration) (leave func()) { return func() {} }

// sharedLine is one session's part in them.
type sharedLine lineSharing

func (l sharedLine) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	up := <-l.free
	defer func() { l.free <- up }()
	l.saw("-- name: Heartbeat ")
	return up.Heartbeat(ctx, session, ttl)
}

func (l sharedLine) Claims(ctx context.Context, session string, known []driver.Claim) ([]driver.Claim, error) {
	up := <-l.free
	defer func() { l.free <- up }()
	l.saw("-- name: Claims ")
	return up.Claims(ctx, session, known)
}

func (sharedLine) Listen(context.Context, string, func(), func(protocol.Hint)) error {
	return driver.ErrUnsupported
}

func (sharedLine) Close() error { return nil }
