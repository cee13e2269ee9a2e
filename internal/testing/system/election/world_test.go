package election

import (
	"context"
	"database/sql"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

const name = "indexer"

// Limits that grow on a slow machine.
var (
	// longTTL is for tests in which no lease ends. A client looks at the database without a hint
	// after a third of it.
	longTTL = dbtest.Scale(30 * time.Second)
	// soon is the limit for what a hint must bring about: less than a third of longTTL.
	soon     = dbtest.Scale(8 * time.Second)
	patience = dbtest.Scale(20 * time.Second)
)

// world is a database with processes of one machine: each client has a pool of its own.
type world struct {
	*testing.T
	db dbtest.Database
}

func each(t *testing.T, f func(w world)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db dbtest.Database) {
		t.Parallel()
		f(world{t, db})
	})
}

// one runs f on SQLite, for tests that do not depend on the engine.
func one(t *testing.T, f func(w world)) {
	t.Parallel()
	f(world{t, dbtest.SQLite(t)})
}

// party is one process.
type party struct {
	*election.Elections
	client *dblock.Client[*sql.Tx]
	pool   *sql.DB
	away   *atomic.Pointer[error] // the error of everything that its database is asked; nil: none; SQLite only
	heldUp chan struct{}          // receives when a release is held up
}

func (w world) party(options ...dblock.Option) party {
	w.Helper()
	p := party{pool: w.db.SQL(w), away: new(atomic.Pointer[error]), heldUp: make(chan struct{}, 1)}
	var engine dblock.Engine[*sql.Tx]
	switch w.db.Kind {
	case dbtest.KindSQLite:
		engine = fakedb.Through(sqlite.New(p.pool), p.hook)
	case dbtest.KindPostgres:
		engine = postgres.NewSQL(p.pool)
	default:
		engine = mysql.New(p.pool)
	}
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	client, err := dblock.New(engine, append([]dblock.Option{dblock.WithTTL(longTTL), dblock.WithLogger(log)},
		options...)...)
	require.NoError(w, err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := client.Close(ctx); err != nil && p.away.Load() == nil {
			w.Error(err)
		}
	})
	p.client, p.Elections = client, election.New(client)
	return p
}

// term is a term that has begun.
type term struct {
	*election.Term
	ctx    context.Context
	finish chan error // the function returns what it receives here
}

// candidate is a campaign under way.
type candidate struct {
	t      testing.TB
	terms  chan term
	stop   context.CancelFunc
	result chan error // what Campaign returned
}

// run campaigns with a function that returns nil as soon as its context ends. With hold it returns
// only what finish receives.
func (p party) run(t testing.TB, hold bool, options ...election.Option) candidate {
	ctx, cancel := context.WithCancel(t.Context())
	c := candidate{t: t, terms: make(chan term, 100), stop: cancel, result: make(chan error, 1)}
	go func() {
		c.result <- p.Campaign(ctx, name, func(ctx context.Context, e *election.Term) error {
			began := term{e, ctx, make(chan error, 1)}
			c.terms <- began
			if hold {
				ctx = t.Context()
			}
			select {
			case err := <-began.finish:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}, options...)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-c.result:
		case <-time.After(patience):
			t.Error("Campaign has not returned")
		}
	})
	return c
}

// leads waits until the candidate leads.
func (c candidate) leads() term {
	c.t.Helper()
	return receive(c.t, c.terms)
}

// ended waits until Campaign has returned.
func (c candidate) ended() error {
	c.t.Helper()
	err := receive(c.t, c.result)
	c.result <- err
	return err
}

func receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(soon):
		t.Fatalf("nothing in %v", soon)
	}
	return v
}

// queued waits until the name has so many waiters.
func (w world) queued(p party, n int) {
	w.Helper()
	for end := time.Now().Add(patience); ; {
		info, err := inspect.New(p.client).Lock(w.Context(), name)
		require.NoError(w, err)
		if len(info.Waiters) == n {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%d wait instead of %d", len(info.Waiters), n)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// observer is a party that hears of changes at once. On MySQL and MariaDB a KILL is lost that comes
// between two statements, so there it also looks soon.
func (w world) observer() party {
	w.Helper()
	if w.db.Kind == dbtest.KindMySQL || w.db.Kind == dbtest.KindMariaDB {
		return w.party(dblock.WithTTL(soon / 2))
	}
	return w.party()
}

// observe streams what one party observes.
func (w world) observe(p party) <-chan election.Leader {
	ctx, cancel := context.WithCancel(w.Context())
	leaders, done := make(chan election.Leader, 1000), make(chan struct{})
	go func() {
		defer close(done)
		for l, err := range p.Observe(ctx, name) {
			if err != nil {
				assert.ErrorIs(w, err, context.Canceled)
				return
			}
			leaders <- l
		}
	}()
	w.Cleanup(func() {
		cancel()
		<-done
	})
	return leaders
}
