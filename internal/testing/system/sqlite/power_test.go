package sqlite_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// power is a machine whose disk has of a file what was there at the last commit that waited for it.
// It is for tests that do one thing after the other.
type power struct {
	driver  sqldriver.Driver
	dsn     string
	path    string
	levels  []int64           // PRAGMA synchronous at each commit
	refused string            // a statement that fails
	before  func(text string) // sees each statement before it runs; nil: nobody
	ran     []string          // the names of the statements of transactions of dblock's
	closed  int
	disk    map[string][]byte
}

func (p *power) Driver() sqldriver.Driver { return p.driver }

func (p *power) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := p.driver.Open(p.dsn)
	return &powered{conn, p}, err
}

// powered is a connection that looks at how each commit of a transaction of dblock's is made.
type powered struct {
	sqldriver.Conn
	power *power
}

func (c *powered) Close() error {
	c.power.closed++
	return c.Conn.Close()
}

func (c *powered) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := c.power.run(text); err != nil {
		return nil, err
	}
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, text, args)
}

func (c *powered) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	p := c.power
	if err := p.run(text); err != nil {
		return nil, err
	}
	result, err := c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, text, args)
	if text == "COMMIT" && err == nil && p.before == nil {
		level, err := c.level(ctx)
		if err != nil {
			return nil, err
		}
		if p.levels = append(p.levels, level); level >= full {
			p.sync()
		}
	}
	return result, err
}

// run notes a statement, or refuses it.
func (p *power) run(text string) error {
	if p.before != nil { // from several goroutines
		p.before(text)
		return nil
	}
	if p.refused != "" && strings.Contains(text, p.refused) {
		return errors.New("refused")
	}
	if name, named := strings.CutPrefix(text, "-- name: "); named {
		name, _, _ = strings.Cut(name, " ")
		p.ran = append(p.ran, name)
	}
	return nil
}

func (c *powered) level(ctx context.Context) (int64, error) {
	rows, err := c.QueryContext(ctx, "PRAGMA main.synchronous", nil)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	level := make([]sqldriver.Value, 1)
	err = rows.Next(level)
	n, _ := level[0].(int64)
	return n, err
}

func (p *power) sync() {
	p.disk = map[string][]byte{}
	for _, suffix := range []string{"", "-wal"} {
		if content, err := os.ReadFile(p.path + suffix); err == nil {
			p.disk[suffix] = content
		}
	}
}

// onPower is a fixture on a machine of its own, whose application has set the level.
func onPower(t *testing.T, journal, level string) (*fixture, *power) {
	t.Helper()
	whole := newFixtureIn(t, journal)
	p := &power{driver: whole.pool.Driver(), dsn: "file:" + whole.path + "?_pragma=synchronous(" + level +
		")&_pragma=busy_timeout(5000)", path: whole.path}
	p.sync()
	return p.start(t), p
}

// spied is a fixture on the same file, of which the test sees each statement before it runs.
func (f *fixture) spied(before func(text string)) *fixture {
	f.t.Helper()
	p := &power{driver: f.pool.Driver(), dsn: "file:" + f.path + "?" + unsynced, path: f.path, before: before}
	return p.start(f.t)
}

func (p *power) start(t *testing.T) *fixture {
	t.Helper()
	pool := sql.OpenDB(p)
	t.Cleanup(func() { _ = pool.Close() })
	return on(t, pool, p.path)
}

// fail cuts the power, and starts the machine again: with what was on its disk.
func (p *power) fail(t *testing.T, f *fixture) *fixture {
	t.Helper()
	disk := p.disk
	require.NoError(t, f.pool.Close())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(p.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if content, ok := disk[suffix]; ok {
			require.NoError(t, os.WriteFile(p.path+suffix, content, 0o600))
		}
	}
	return p.start(t)
}
