//go:build unix

package fault

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

var errCut = errors.New("the database is cut off")

// gate is a database in an SQLite file that can be cut off, delayed, and wiped. It takes the place
// of the network.
type gate struct {
	*world
	file   string
	empty  string   // a file with dblock's tables as the migrations leave them
	tables []string // their names

	lies bool // a wiped database says that it remembers

	mu    sync.Mutex // protects what follows
	isCut bool
	delay time.Duration
}

// newGates makes databases with memories older than a quarantine.
func newGates(t *world, n int) []*gate {
	t.Helper()
	empty := filepath.Join(t.TempDir(), "empty.db")
	db := openFile(t, empty)
	defer db.Close()
	require.NoError(t, migrate.Up(t.Context(), db, migrate.SQLite))
	var tables string
	require.NoError(t, db.QueryRow("SELECT group_concat(name, ' ') FROM sqlite_schema WHERE type = 'table' AND "+
		"name LIKE 'dblock%'").Scan(&tables))
	gates := make([]*gate, n)
	for i := range gates {
		gates[i] = &gate{world: t, file: filepath.Join(t.TempDir(), "member.db"), empty: empty,
			tables: strings.Fields(tables)}
		_, err := db.Exec("VACUUM INTO ?", gates[i].file)
		require.NoError(t, err)
		require.NoError(t, remember(openFile(t, gates[i].file)))
	}
	return gates
}

// remember makes a database one that has never lost its data.
func remember(db *sql.DB) error {
	_, err := db.Exec(neverLost)
	return errors.Join(err, db.Close())
}

const neverLost = "INSERT INTO dblock_incarnation (one, since, token_floor) VALUES (1, 1, 1)"

func openFile(t *world, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(file))
	require.NoError(t, err)
	return db
}

func dsn(file string) string {
	return "file:" + file + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

// wipe makes dblock's tables anew. The file stays: if it is replaced, its pool refuses to work.
func (g *gate) wipe() error {
	db := openFile(g.world, g.file)
	defer db.Close()
	conn, err := db.Conn(g.Context())
	if err != nil {
		return err
	}
	defer conn.Close()
	statements := []string{"PRAGMA busy_timeout = 60000", "ATTACH '" + g.empty + "' AS empty", "BEGIN IMMEDIATE"}
	for _, table := range g.tables {
		statements = append(statements, "DELETE FROM main."+table,
			"INSERT INTO main."+table+" SELECT * FROM empty."+table)
	}
	if g.lies {
		statements = append(statements, neverLost)
	}
	for _, statement := range append(statements, "COMMIT") {
		if _, err := conn.ExecContext(g.Context(), statement); err != nil {
			return err
		}
	}
	return nil
}

func (g *gate) cut()  { g.set(true, 0) }
func (g *gate) slow() { g.set(false, 2*realLimit) }
func (g *gate) heal() { g.set(false, 0) }
func (g *gate) client() (*dblock.Client[any], func(), error) {
	pool := sql.OpenDB(&passage{g})
	return memberOf(inside.Of(sqlite.New(pool)).Backend, func() { _ = pool.Close() })
}

func (g *gate) set(cut bool, delay time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isCut, g.delay = cut, delay
}

// pass lets a statement through to the database, or fails.
func (g *gate) pass() error {
	g.mu.Lock()
	delay := g.delay
	g.mu.Unlock()
	if delay > 0 {
		time.Sleep(rand.N(delay)) // the delay of the database: the test waits for nothing here
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isCut {
		return errCut
	}
	return nil
}

// remembers reports whether the database has never lost its data, or has been healed.
func (g *gate) remembers(t *world) bool {
	db := openFile(t, g.file)
	defer db.Close()
	var ok bool
	err := db.QueryRow("SELECT c.now_us - i.since > ? AND i.token_floor > 0 FROM dblock_incarnation i CROSS JOIN "+
		"dblock_clock c", realQuarantine.Microseconds()).Scan(&ok)
	return err == nil && ok
}

// passage makes connections to a gate.
type passage struct{ *gate }

// Connect makes a passage a sqldriver.Connector.
func (l *passage) Connect(context.Context) (sqldriver.Conn, error) {
	if err := l.pass(); err != nil {
		return nil, err
	}
	c, err := l.Driver().Open(dsn(l.file))
	if err != nil {
		return nil, err
	}
	return &cuttable{Conn: c, g: l.gate}, nil
}

func (l *passage) Driver() sqldriver.Driver {
	db, err := sql.Open("sqlite", "")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	return db.Driver()
}

// cuttable is a connection through a gate.
type cuttable struct {
	sqldriver.Conn
	g *gate
}

func (c *cuttable) ExecContext(
	ctx context.Context, query string, args []sqldriver.NamedValue,
) (sqldriver.Result, error) {
	if err := c.g.pass(); err != nil {
		return nil, err
	}
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *cuttable) QueryContext(
	ctx context.Context, query string, args []sqldriver.NamedValue,
) (sqldriver.Rows, error) {
	if err := c.g.pass(); err != nil {
		return nil, err
	}
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, query, args)
}
