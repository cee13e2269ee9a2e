//go:build unix

package fault

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
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
	folder   string
	template []byte // an empty database with dblock's tables

	lies bool // a wiped database says that it remembers

	mu    sync.Mutex // protects what follows
	file  string
	gen   int // how often it was wiped
	isCut bool
	delay time.Duration
}

// newGates makes databases with memories older than a quarantine.
func newGates(t *world, n int) []*gate {
	t.Helper()
	file := filepath.Join(t.TempDir(), "template.db")
	db := openFile(t, file)
	require.NoError(t, migrate.Up(t.Context(), db, migrate.SQLite))
	require.NoError(t, db.Close())
	template, err := os.ReadFile(file)
	require.NoError(t, err)
	gates := make([]*gate, n)
	for i := range gates {
		gates[i] = &gate{folder: t.TempDir(), template: template}
		require.NoError(t, gates[i].wipe())
		require.NoError(t, remember(openFile(t, gates[i].file)))
	}
	return gates
}

// remember makes a database one that has never lost its data.
func remember(db *sql.DB) error {
	_, err := db.Exec("INSERT INTO dblock_incarnation (one, since, token_floor) VALUES (1, 1, 1)")
	return errors.Join(err, db.Close())
}

func openFile(t *world, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(file))
	require.NoError(t, err)
	return db
}

func dsn(file string) string {
	return "file:" + file + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

// wipe replaces the database with an empty one. Connections to the old one break.
func (g *gate) wipe() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gen++
	g.file = filepath.Join(g.folder, strconv.Itoa(g.gen)+".db")
	err := os.WriteFile(g.file, g.template, 0o600)
	if err == nil && g.lies {
		var db *sql.DB
		if db, err = sql.Open("sqlite", dsn(g.file)); err == nil {
			err = remember(db)
		}
	}
	return err
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

// pass lets a statement through to the database, or fails. gen is the connection's; 0: a new
// connection.
func (g *gate) pass(gen int) (file string, now int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delay := g.delay; delay > 0 {
		g.mu.Unlock()
		time.Sleep(rand.N(delay)) // the delay of the database: the test waits for nothing here
		g.mu.Lock()
	}
	if g.isCut || gen != 0 && gen != g.gen {
		return "", 0, errCut
	}
	return g.file, g.gen, nil
}

// remembers reports whether the database has never lost its data, or has been healed.
func (g *gate) remembers(t *world) bool {
	g.mu.Lock()
	file := g.file
	g.mu.Unlock()
	db := openFile(t, file)
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
	file, gen, err := l.pass(0)
	if err != nil {
		return nil, err
	}
	c, err := l.Driver().Open(dsn(file))
	if err != nil {
		return nil, err
	}
	return &cuttable{Conn: c, g: l.gate, gen: gen}, nil
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
	g   *gate
	gen int
}

func (c *cuttable) ExecContext(
	ctx context.Context, query string, args []sqldriver.NamedValue,
) (sqldriver.Result, error) {
	if _, _, err := c.g.pass(c.gen); err != nil {
		return nil, err
	}
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *cuttable) QueryContext(
	ctx context.Context, query string, args []sqldriver.NamedValue,
) (sqldriver.Rows, error) {
	if _, _, err := c.g.pass(c.gen); err != nil {
		return nil, err
	}
	return c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, query, args)
}

// IsValid keeps connections to a wiped database out of the pool.
func (c *cuttable) IsValid() bool {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return c.gen == c.g.gen
}
