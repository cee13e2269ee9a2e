package migrate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/migrations"
)

// Up and Down are cut before each of their statements in turn, by an error or by the end of their
// context, and then called again. PostgreSQL and SQLite must have nothing of the version that was
// cut.
func TestARunThatWasCutAnywhereCanBeRunAgain(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		for _, set := range []migrate.Set{migrate.Locks, migrate.Fences} {
			cutAnywhere(t, db, set)
		}
	})
}

func cutAnywhere(t *testing.T, db dbtest.Database, set migrate.Set) {
	pool := db.SQL(t)
	whole := wholes(t, db, pool, set)
	ways, step := []string{"error", "context"}, 1
	if db.Engine != migrate.SQLite {
		step = 6 // DDL is slow on a server: there each run takes another sixth of the statements
	}
	way := rand.N(len(ways))
	for n := 1 + rand.N(step); ; n += step {
		way = 1 - way
		how := ways[way]
		over := cut(t, db, pool, how, n, migrate.Up, set, whole)
		if err := migrate.Up(t.Context(), pool, db.Engine, set); err != nil {
			t.Fatalf("Up after one that was cut by an %s before statement %d: %v", how, n, err)
		}
		complete(t, db, pool, set)
		if over {
			break
		}
		cut(t, db, pool, how, n, migrate.Down, set, whole)
		empty(t, db, pool, set)
	}
	empty(t, db, pool, set)
}

// wholes are what there is after each version of a set, beginning with nothing.
func wholes(t *testing.T, db dbtest.Database, pool *sql.DB, set migrate.Set) (whole []string) {
	t.Helper()
	files, err := migrations.FS(db.Engine, set)
	ok(t, err)
	p, err := goose.NewProvider(gooseDialect(db), pool, files, goose.WithTableName("cut_versions"), goose.WithDisableGlobalRegistry(true))
	ok(t, err)
	for {
		whole = append(whole, fmt.Sprint(left(t, db, pool)))
		if _, err := p.UpByOne(t.Context()); errors.Is(err, goose.ErrNoNextVersion) {
			break
		} else {
			ok(t, err)
		}
	}
	_, err = p.DownTo(t.Context(), 0)
	ok(t, err)
	_, err = pool.ExecContext(t.Context(), "DROP TABLE cut_versions")
	ok(t, err)
	return whole
}

func empty(t *testing.T, db dbtest.Database, pool *sql.DB, set migrate.Set) {
	t.Helper()
	ok(t, migrate.Down(t.Context(), pool, db.Engine, set))
	if tables := left(t, db, pool); len(tables) > 0 {
		t.Fatalf("Down left %v", tables)
	}
	_, err := pool.ExecContext(t.Context(), "DROP TABLE "+set.Table())
	ok(t, err)
}

// cut runs Up or Down over a driver that fails at its n-th statement, and reports whether it never
// reached that statement.
func cut(t *testing.T, db dbtest.Database, pool *sql.DB, how string, n int, run func(context.Context, *sql.DB, string, ...migrate.Set) error, set migrate.Set, whole []string) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	faulty := &faults{driver: pool.Driver(), dsn: db.DSN, left: n, end: cancel}
	if how == "error" {
		faulty.end = nil
	}
	cutting := sql.OpenDB(faulty)
	defer cutting.Close()
	cutting.SetMaxOpenConns(1)
	err := run(ctx, cutting, db.Engine, set)
	if faulty.left > 0 {
		ok(t, err)
		return true
	}
	if err == nil { // after the COMMIT only the release can be interrupted
		return false
	}
	if how == "error" && strings.Contains(err.Error(), "already closed") || !errors.Is(err, errCut) && !errors.Is(err, context.Canceled) {
		t.Errorf("cut before statement %d: %v", n, err)
	}
	if after := left(t, db, pool); db.Engine != migrate.MySQL && !slices.Contains(whole, fmt.Sprint(after)) {
		t.Errorf("cut before statement %d: %v is left, of half a version", n, after)
	}
	return false
}

var errCut = errors.New("cut")

// faults is a connector with connections that count their statements together, and fail once.
type faults struct {
	driver driver.Driver
	dsn    string
	left   int
	end    func() // ends the context instead of failing
}

func (f *faults) Driver() driver.Driver { return f.driver }

func (f *faults) Connect(context.Context) (driver.Conn, error) {
	conn, err := f.driver.Open(f.dsn)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: conn, faults: f}, nil
}

func (f *faults) strike() error {
	f.left--
	if f.left != 0 {
		return nil
	}
	if f.end != nil {
		f.end()
		return nil
	}
	return errCut
}

type faultyConn struct {
	driver.Conn
	faults *faults
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.faults.strike(); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.faults.strike(); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

// ResetSession and IsValid tell the pool that a connection was closed. Without them the pool would
// lend it to the next version's run.
func (c *faultyConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *faultyConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *faultyConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
