package dblocktest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

var errDown = driver.Fail(driver.ErrUnavailable, errors.New("dblocktest: the database is away: Down was called"))

// closeLimit bounds how long the end of a test waits for a client to be closed.
const closeLimit = 10 * time.Second

// Fake is a process with a client, on a database in memory. It is safe for concurrent use. TX is
// the type of the application's transactions.
type Fake[TX any] struct {
	// Client is a real client. The test may close it; otherwise the end of the test does.
	Client *dblock.Client[TX]

	t      testing.TB
	link   *link
	others *other
}

// New makes a process with a database of its own. The client logs to the test, unless an option
// says otherwise. When the test ends the client is closed, and releases its locks. An option that
// dblock.New refuses ends the test. New does no I/O.
func New[TX any](t testing.TB, options ...dblock.Option) *Fake[TX] {
	t.Helper()
	d := newDatabase()
	return process[TX](t, d, &other{t: t, link: newLink(d)}, options)
}

// Another makes a second process on the same database, with a client and options of its own. It
// ends with its test, which may be a subtest.
func (f *Fake[TX]) Another(t testing.TB, options ...dblock.Option) *Fake[TX] {
	t.Helper()
	return process[TX](t, f.link.of, f.others, options)
}

func process[TX any](t testing.TB, d *database, o *other, options []dblock.Option) *Fake[TX] {
	t.Helper()
	l := newLink(d)
	return &Fake[TX]{Client: clientOn[TX](t, l, options), t: t, link: l, others: o}
}

// clientOn makes a client of a process.
func clientOn[TX any](t testing.TB, l *link, options []dblock.Option) *dblock.Client[TX] {
	t.Helper()
	c := newClient(t, engineOn[TX](l), append(slices.Clone(options), *inside.Make[dblock.Option](l.Timed)))
	l.core = inside.Of(c)
	t.Cleanup(l.Reconnect) // before the client is closed, which need not wait for a database that is away
	return c
}

// engineOn is the engine of a process.
func engineOn[TX any](l *link) dblock.Engine[TX] {
	return *inside.Make[dblock.Engine[TX]](driver.Engine[TX]{Backend: l, In: inNoTx[TX]})
}

// newClient makes a client that logs to the test, and is closed at the end of the test.
func newClient[TX any](t testing.TB, engine dblock.Engine[TX], options []dblock.Option) *dblock.Client[TX] {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c, err := dblock.New(engine, append([]dblock.Option{dblock.WithLogger(log)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("dblocktest: %v", err)
		}
	})
	return c
}

// Timed gives a client the clock of the database.
func (l *link) Timed(c *client.Config) { c.Clock, c.Opened = l.Movable, l.opened }

// Advance moves the clock by d for the database and for the clients of all its processes. When it
// returns, everything that was due by then has happened: fixed leases (Lease) have expired, names
// whose MinHold has elapsed have new holders, a new slot of OncePer has begun. Clients send their
// heartbeats meanwhile, as in so much time, so that they keep their locks. A client that is Down
// does not: when its TTL has passed its locks are lost, and go to the next waiters. Contexts of
// lost locks end before the names have new holders.
//
// The goroutines of the test run on: one that waits for a lock is granted it as soon as the lock is
// released, and none of them stops for d. A day takes less than a second with the default TTL. In a
// bubble of testing/synctest Advance is time.Sleep(d) and synctest.Wait. d ≤ 0 does nothing.
func (f *Fake[TX]) Advance(d time.Duration) { f.link.Advance(d) }

// Down cuts this process from the database, as a network does: no request of it is answered.
// Waiters wait on, holders keep their locks until the TTL has passed (Advance), and the first call
// of a client fails with ErrUnavailable at once. Later calls retry for a TTL, as on a server,
// before they fail: Advance by it, or test in a bubble of testing/synctest. Other processes go on;
// call Down of each for a database that is away.
func (f *Fake[TX]) Down() { f.link.Disconnect(errDown) }

// Up ends Down. The client reconnects by itself, after a pause of up to some seconds: a call that
// waits goes on then. A new call works at once.
func (f *Fake[TX]) Up() { f.link.Reconnect() }
