package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/reaper"
)

var input = inPlaces(own{
	{"a client that cannot work is refused before any I/O", badClients},
	{"a lock that cannot be is refused before any I/O", badLocks},
	{"a database without tables is told with what to run", unmigrated},
	{"a database that lost its tables is told, and works again with new ones", tablesLost},
})

// dead is an engine on a pool that is closed: whatever does I/O gets ErrConfig.
func (e *env) dead(t *testing.T) App {
	a := e.app(t, 4)
	a.close()
	return a
}

func badClients(t *testing.T, e *env) {
	e.needsSQL(t)
	is(t, assert.ErrOf(newClient(e.wiring.Open(nil, e.db, 0))), dblock.ErrConfig)
	a := e.dead(t)
	for what, option := range map[string]dblock.Option{
		"zero":             {},
		"TTL 0":            dblock.WithTTL(0),
		"TTL < 1s":         dblock.WithTTL(time.Second - 1),
		"TTL > 24h":        dblock.WithTTL(24*time.Hour + 1),
		"TTL < 0":          dblock.WithTTL(-time.Minute),
		"empty host":       dblock.WithHost(""),
		"no host folder":   dblock.WithHostFolder(""),
		"a relative one":   dblock.WithHostFolder("run/dblock"),
		"long host":        dblock.WithHost(strings.Repeat("h", 256)),
		"host with NUL":    dblock.WithHost("a\x00b"),
		"app not UTF-8":    dblock.WithApp("\xff"),
		"nil logger":       dblock.WithLogger(nil),
		"reaper interval":  dblock.WithReaper(reaper.Interval(0)),
		"reaper retention": dblock.WithReaper(reaper.Retention(-1)),
		"reaper batch":     dblock.WithReaper(reaper.Batch(0)),
		"reaper nil":       dblock.WithReaper(nil),
	} {
		assert.ErrorIs(t, assert.ErrOf(newClient(a, option)), dblock.ErrInvalidOption, what, "error")
	}
	for _, ttl := range []time.Duration{time.Second, 24 * time.Hour} {
		assert.NoError(t, assert.ErrOf(newClient(a, dblock.WithTTL(ttl))), "TTL", ttl)
	}
}

func badLocks(t *testing.T, e *env) {
	e.needsSQL(t)
	c := e.clientOf(t, e.dead(t))
	try := func(what string, want error, ctx context.Context, name string, options ...dblock.LockOption) {
		t.Helper()
		var do error
		for op, call := range map[string]func() error{
			"Lock":    func() error { _, err := c.Lock(ctx, name, options...); return err },
			"TryLock": func() error { _, err := c.TryLock(ctx, name, options...); return err },
			"Do": func() error {
				do = c.Do(ctx, name, func(context.Context, *dblock.Lock) error {
					t.Errorf("%s: Do ran its function", what)
					return nil
				}, options...)
				return do
			},
		} {
			if err := call(); !errors.Is(err, want) ||
				errors.Is(err, dblock.ErrUnavailable) != (want == dblock.ErrUnavailable) {
				t.Errorf("%s: %s returned %v: want %v", what, op, err, want)
			}
		}
	}
	ctx := t.Context()
	try("empty name", dblock.ErrInvalidName, ctx, "")
	try("long name", dblock.ErrInvalidName, ctx, strings.Repeat("n", 256))
	try("name too long in bytes", dblock.ErrInvalidName, ctx, strings.Repeat("\u00fc", 128))
	try("name not UTF-8", dblock.ErrInvalidName, ctx, "a\xc3")
	try("name with NUL", dblock.ErrInvalidName, ctx, "a\x00")
	try("nil context", dblock.ErrInvalidOption, nil, "name")
	try("zero option", dblock.ErrInvalidOption, ctx, "name", dblock.LockOption{})
	try("negative lease", dblock.ErrInvalidOption, ctx, "name", dblock.Lease(-time.Second))
	try("no lease", dblock.ErrInvalidOption, ctx, "name", dblock.Lease(0))
	try("tiny lease", dblock.ErrInvalidOption, ctx, "name", dblock.Lease(time.Millisecond))
	try("no wait", dblock.ErrInvalidOption, ctx, "name", dblock.WaitAtMost(0))
	try("negative wait", dblock.ErrInvalidOption, ctx, "name", dblock.WaitAtMost(-time.Second))
	_, err := c.LockAll(ctx, []string{"a", "b"}, dblock.For("b", dblock.WaitAtMost(time.Second)))
	is(t, err, dblock.ErrInvalidOption)
	try("empty owner host", dblock.ErrInvalidOption, ctx, "name", dblock.Owner("", "thread"))
	try("empty owner thread", dblock.ErrInvalidOption, ctx, "name", dblock.Owner("host", ""))
	try("long owner thread", dblock.ErrInvalidOption, ctx, "name", dblock.Owner("host", strings.Repeat("t", 256)))
	try("owner not UTF-8", dblock.ErrInvalidOption, ctx, "name", dblock.Owner("\xff", "thread"))
	try("long metadata", dblock.ErrInvalidOption, ctx, "name",
		dblock.Metadata(map[string]string{"a": strings.Repeat("m", 4096)}))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	try("a context that has ended", context.Canceled, gone, "name")
	_, err = c.LockAll(gone, []string{"a", "b"})
	is(t, err, context.Canceled)
	try("a name that can be", dblock.ErrConfig, ctx, "name") // there I/O is seen: the pool is closed
	var none context.Context
	assert.ErrorIs(t, c.CheckSchema(none), dblock.ErrInvalidOption, "CheckSchema(nil)")
	assert.ErrorIs(t, c.Close(none), dblock.ErrInvalidOption, "Close(nil)")
	l := lock(t, e.client(t), "held")
	assert.ErrorIs(t, l.Unlock(none), dblock.ErrInvalidOption, "Unlock(nil)")
	live(t, l)
	unlock(t, l)
}

// schema checks that an error says which version is there, which is needed, and what to run.
func schema(t *testing.T, err error) {
	t.Helper()
	says(t, err, dblock.ErrSchema, "run migrate.Up", "missing in ", "unless a migration is under way",
		fmt.Sprintf("needs version %d", driver.SchemaVersion))
}

func unmigrated(t *testing.T, e *env) {
	e.needsSQL(t)
	e = emptyEnv(t, e.wiring)
	c := e.client(t)
	err := c.CheckSchema(t.Context())
	schema(t, err)
	says(t, err, dblock.ErrSchema, " in "+e.place(t)+"; ")
	schema(t, assert.ErrOf(c.Lock(t.Context(), "any")))
	schema(t, assert.ErrOf(c.TryLock(t.Context(), "any")))
	schema(t, assert.ErrOf(c.Inspect(t.Context(), "any")))
	e.db.Migrate(t)
	assert.NoError(t, c.CheckSchema(t.Context()))
	unlock(t, lock(t, c, "any"))
}

// place is how an error names the place in which the tables of a test's database are looked for.
func (e *env) place(t *testing.T) (place string) {
	t.Helper()
	text := "SELECT 'database \"' || current_database() || '\", schema \"public\"'"
	switch e.wiring.Kind {
	case Postgres:
	case SQLite:
		text = "SELECT 'file \"' || file || '\"' FROM pragma_database_list"
	default:
		text = `SELECT CONCAT('database "', DATABASE(), '"')`
	}
	require.NoError(t, e.look.QueryRowContext(t.Context(), text).Scan(&place))
	return place
}

func tablesLost(t *testing.T, e *env) {
	e.needsSQL(t)
	e.needsDown(t)
	const ttl = 5 * time.Second // in real time: the tables of a clock that moves are gone, too
	a, b := e.client(t, dblock.WithTTL(ttl)), e.client(t, dblock.WithTTL(ttl))
	held := lock(t, a, "held")
	line := e.line(t, "held", 1, []Client{b}, background)
	require.NoError(t, migrate.Down(t.Context(), e.look, e.db.Engine))
	_, err := b.Lock(t.Context(), "other")
	schema(t, err)
	_, err = a.TryLock(t.Context(), "other")
	schema(t, err)
	ended(t, soon, held, dblock.ErrLost)
	is(t, within(t, soon, "the waiter returns", line[0]).err, dblock.ErrSchema) // it may have looked halfway down
	e.db.Migrate(t)
	unlock(t, granted(t, soon, locking(t.Context(), a, "held")))
	unlock(t, granted(t, soon, locking(t.Context(), b, "held")))
}

func readOnly(t *testing.T, e *env, s Setting) {
	unlock(t, lock(t, e.client(t), "before"))
	e.db.DSN = s.DSN(e.db.DSN)
	c := e.client(t)
	assert.NoError(t, c.CheckSchema(t.Context()))
	is(t, within(t, soon, "Lock returns", locking(t.Context(), c, "any")).err, dblock.ErrReadOnly)
	is(t, assert.ErrOf(c.TryLock(t.Context(), "any")), dblock.ErrReadOnly)
	is(t, c.Ping(t.Context()), dblock.ErrReadOnly)
}
