//go:build unix

package fault

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/migrations"
)

// bugKeepsHalf is of a database that commits what was to be rolled back.
const bugKeepsHalf = "commits the half of a migration"

// migrationsRound cuts Up and Down before each of their statements in turn, by an error or by the
// end of their context, and calls them again. PostgreSQL and SQLite must have nothing of the
// version that was cut.
func migrationsRound(w *world) {
	set := []migrate.Set{migrate.Locks, migrate.Fences}[w.random.IntN(8)/7]
	pool := w.db.SQL(w)
	whole := wholes(w, pool, set)
	way, first := w.random.IntN(2), 1+w.random.IntN(40)
	cuts := 0
	for n, end := first, session.Boottime()+w.length; cuts == 0 || session.Boottime() < end; n++ {
		how := []string{"error", "context"}[(way+n)%2]
		over := cut(w, pool, how, n, migrate.Up, set, whole)
		if err := migrate.Up(w.Context(), pool, w.db.Engine, set); err != nil {
			w.Fatalf("Up after one that was cut by an %s before statement %d: %v", how, n, err)
		}
		if after := fmt.Sprint(left(w, pool)); after != whole[len(whole)-1] {
			w.Errorf("Up after one that was cut by an %s before statement %d: there is %v", how, n, after)
		}
		if list, err := migrate.Status(w.Context(), pool, w.db.Engine, set); err != nil || slices.ContainsFunc(list,
			func(m migrate.Migration) bool { return !m.Applied }) {
			w.Errorf("Up after one that was cut by an %s before statement %d: %+v, %v", how, n, list, err)
		}
		if over { // from the first statement on
			n = 0
		} else {
			cuts++
			cut(w, pool, how, n, migrate.Down, set, whole)
		}
		empty(w, pool, set)
	}
}

// wholes are what there is after each version of a set, beginning with nothing.
func wholes(w *world, pool *sql.DB, set migrate.Set) (whole []string) {
	w.Helper()
	files, err := migrations.FS(w.db.Engine, set)
	w.ok(err)
	dialect := goose.Dialect(strings.Replace(string(w.db.Engine), "sqlite", "sqlite3", 1))
	p, err := goose.NewProvider(dialect, pool, files,
		goose.WithTableName("cut_versions"), goose.WithDisableGlobalRegistry(true))
	w.ok(err)
	for {
		whole = append(whole, fmt.Sprint(left(w, pool)))
		if _, err := p.UpByOne(w.Context()); errors.Is(err, goose.ErrNoNextVersion) {
			break
		} else {
			w.ok(err)
		}
	}
	_, err = p.DownTo(w.Context(), 0)
	w.ok(err)
	_, err = pool.ExecContext(w.Context(), "DROP TABLE cut_versions")
	w.ok(err)
	return whole
}

func empty(w *world, pool *sql.DB, set migrate.Set) {
	w.Helper()
	w.ok(migrate.Down(w.Context(), pool, w.db.Engine, set))
	if tables := left(w, pool); len(tables) > 0 {
		w.Fatalf("Down left %v", tables)
	}
	_, err := pool.ExecContext(w.Context(), "DROP TABLE "+set.Table())
	w.ok(err)
}

// cut runs Up or Down over a driver that fails at its n-th statement, and reports whether it never
// reached that statement.
func cut(
	w *world, pool *sql.DB, how string, n int, run func(context.Context, *sql.DB, migrate.Engine, ...migrate.Set) error,
	set migrate.Set, whole []string,
) bool {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	w.tried("cuts", 1)
	faulty := &faults{keeps: w.bug == bugKeepsHalf, driver: pool.Driver(), dsn: w.db.DSN, left: n, end: cancel}
	if how == "error" {
		faulty.end = nil
	}
	cutting := sql.OpenDB(faulty)
	defer cutting.Close()
	cutting.SetMaxOpenConns(1)
	err := run(ctx, cutting, w.db.Engine, set)
	if faulty.left > 0 {
		w.ok(err)
		return true
	}
	if err == nil { // after the COMMIT only the release can be interrupted
		return false
	}
	if how == "error" && strings.Contains(err.Error(), "already closed") || !errors.Is(err, errStruck) &&
		!errors.Is(err, context.Canceled) {
		w.Errorf("cut before statement %d: %v", n, err)
	}
	if after := left(w, pool); w.db.Engine != migrate.MySQL && !slices.Contains(whole, fmt.Sprint(after)) {
		w.Errorf("cut before statement %d: %v is left, of half a version", n, after)
	}
	return false
}

var errStruck = errors.New("cut")

// faults is a connector with connections that count their statements together, and fail once.
type faults struct {
	driver driver.Driver
	dsn    string
	left   int
	end    func() // ends the context instead of failing
	keeps  bool   // bugKeepsHalf
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
	return errStruck
}

type faultyConn struct {
	driver.Conn
	faults *faults
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.faults.strike(); err != nil {
		return nil, err
	}
	if c.faults.keeps && query == "ROLLBACK" {
		query = "COMMIT"
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

// left lists what there is with dblock's prefix, other than the version table.
func left(w *world, pool *sql.DB) (names []string) {
	w.Helper()
	rows, err := pool.QueryContext(w.Context(), map[migrate.Engine]string{
		migrate.Postgres: "SELECT relname FROM pg_class WHERE relname LIKE 'dblock%' UNION SELECT proname FROM " +
			"pg_proc WHERE proname LIKE 'dblock%'",
		migrate.MySQL: "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND " +
			"table_name LIKE 'dblock%'",
		migrate.SQLite: "SELECT name FROM sqlite_master WHERE name LIKE 'dblock%'",
	}[w.db.Engine])
	w.ok(err)
	defer rows.Close()
	for rows.Next() {
		var name string
		w.ok(rows.Scan(&name))
		if !strings.HasPrefix(name, "dblock_migrations") {
			names = append(names, name)
		}
	}
	w.ok(rows.Err())
	slices.Sort(names)
	return names
}

func (w *world) ok(err error) {
	w.Helper()
	require.NoError(w, err)
}

// A few cuts, of all that scripts/soak makes.
func TestARunThatWasCutCanBeRunAgain(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		r := newRound(kind{name: "migrations"}, db.Kind, *soakSeed, nil, 0, "", &tally{counts: map[string]int{}})
		migrationsRound(&world{T: t, round: r, db: db})
	})
}
