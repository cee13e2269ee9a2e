package named_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldrv "database/sql/driver"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/named"
	"github.com/dblock-go/dblock/internal/sessionlock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// patience is how long a test waits for what must happen.
var patience = dbtest.Scale(15 * time.Second)

// stage is a server on which a test takes named locks. They are the whole server's, which other
// tests use: all names begin with a prefix of the test's own.
type stage struct {
	dbtest.Database
	pool   *sql.DB // of the test itself
	t      *testing.T
	prefix string
}

func onStage(t *testing.T, play func(t *testing.T, s stage)) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Empty(t, kind)
			play(t, stage{db, db.SQL(t), t, strings.ToLower(rand.Text()) + "/"})
		})
	}
}

// absence is how long waits survive without the server: longer than a server takes to start.
const absence = time.Minute

func (s stage) name(name string) string { return s.prefix + name }

// open makes a pool with the application's own idea of a DSN.
func (s stage) open(change func(*sqldriver.Config)) *sql.DB {
	s.t.Helper()
	config, err := sqldriver.ParseDSN(s.DSN)
	require.NoError(s.t, err)
	if change != nil {
		change(config)
	}
	connector, err := sqldriver.NewConnector(config)
	require.NoError(s.t, err)
	pool := sql.OpenDB(connector)
	s.t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func (s stage) exec(text string) {
	s.t.Helper()
	_, err := s.pool.Exec(text)
	require.NoError(s.t, err)
}

// number is a single number from the database.
func (s stage) number(text string, args ...any) (n int64) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(text, args...).Scan(&n))
	return n
}

// client is a keeper on a pool of its own.
func (s stage) client(change func(*sqldriver.Config)) *sessionlock.Keeper[string] {
	return s.keeper(s.open(change))
}

func (s stage) keeper(pool *sql.DB) *sessionlock.Keeper[string] { return s.keeperFor(pool, absence) }

func (s stage) keeperFor(pool *sql.DB, absence time.Duration) *sessionlock.Keeper[string] {
	k, err := named.Open(pool, sessionlock.Config{TTL: absence, Log: slog.New(slog.DiscardHandler)})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, k.Close(context.Background())) })
	return k
}

func (s stage) lock(k *sessionlock.Keeper[string], name string) sessionlock.Possession {
	s.t.Helper()
	p, got, err := k.Acquire(s.t.Context(), s.name(name), false, true)
	if err != nil || !got {
		s.t.Fatal(got, err)
	}
	return p
}

// try reports whether a name can be had at once, and gives it back.
func (s stage) try(k *sessionlock.Keeper[string], name string) bool {
	s.t.Helper()
	p, got, err := k.Acquire(s.t.Context(), s.name(name), false, false)
	require.NoError(s.t, err)
	if got {
		s.unlock(p)
	}
	return got
}

func (s stage) unlock(p sessionlock.Possession) {
	s.t.Helper()
	require.NoError(s.t, p.Release(s.t.Context()))
}

// outcome is what a call returned that runs while the test goes on.
type outcome struct {
	possession sessionlock.Possession
	err        error
}

// begin asks for a name, and returns when that many waiters wait in the server.
func (s stage) begin(k *sessionlock.Keeper[string], name string, waiters int64) (<-chan outcome, context.CancelFunc) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	c := make(chan outcome, 1)
	go func() {
		p, _, err := k.Acquire(ctx, s.name(name), false, true)
		c <- outcome{p, err}
	}()
	s.waiting(waiters)
	return c, cancel
}

func (s stage) granted(c <-chan outcome) sessionlock.Possession {
	s.t.Helper()
	select {
	case o := <-c:
		require.NoError(s.t, o.err)
		return o.possession
	case <-time.After(patience):
		s.t.Fatal("it was not granted")
		return nil
	}
}

func (s stage) lost(p sessionlock.Possession) {
	s.t.Helper()
	select {
	case <-p.Kept().Done():
	case <-time.After(patience):
		s.t.Fatal("it is not lost")
	}
}

func (s stage) waiting(n int64) {
	s.t.Helper()
	dbtest.Eventually(s.t, "the waiters in the server", func() bool {
		return s.number("SELECT COUNT(*) FROM "+s.Processes()+" WHERE db = DATABASE() AND state = "+
			"'User lock'") == n
	})
}

// waiterOf is the connection that waits; -1: none.
func (s stage) waiterOf() int64 {
	return s.number("SELECT COALESCE(MAX(id), -1) FROM " + s.Processes() + " WHERE db = DATABASE() AND state = " +
		"'User lock'")
}

// holder is the connection that has a key; -1: none.
func (s stage) holder(key string) int64 {
	return s.number("SELECT COALESCE(IS_USED_LOCK(?), -1)", key)
}

// nothingLeft waits until the locks and the queues of names are free.
func (s stage) nothingLeft(names ...string) {
	s.t.Helper()
	dbtest.Eventually(s.t, "the locks to be free", func() bool {
		for _, name := range names {
			key := named.Key(s.name(name))
			if s.holder(key) != -1 || s.holder(key+"+") != -1 {
				return false
			}
		}
		return true
	})
}

func is(t *testing.T, err, kind error) {
	t.Helper()
	require.ErrorIs(t, err, kind, "error")
}

// tap is between a pool and its driver.
type tap struct {
	sqldrv.Connector
	rewrite func(text string) (string, error)
	spread  bool // each statement on another of two connections
}

func (s stage) tapped(rewrite func(text string) (string, error), spread bool) *sql.DB {
	config, err := sqldriver.ParseDSN(s.DSN)
	require.NoError(s.t, err)
	connector, err := sqldriver.NewConnector(config)
	require.NoError(s.t, err)
	if rewrite == nil {
		rewrite = func(text string) (string, error) { return text, nil }
	}
	pool := sql.OpenDB(tap{connector, rewrite, spread})
	s.t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// instead replaces a piece of text in statements.
func instead(of, text string) func(string) (string, error) {
	return func(statement string) (string, error) { return strings.ReplaceAll(statement, of, text), nil }
}

func (t tap) Connect(ctx context.Context) (sqldrv.Conn, error) {
	c := &tapConn{tap: t}
	for range 2 {
		conn, err := t.Connector.Connect(ctx)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.conns = append(c.conns, conn)
		if !t.spread {
			break
		}
	}
	return c, nil
}

// tapConn is not the driver's own connection: it has no socket to look at.
type tapConn struct {
	tap
	conns []sqldrv.Conn
	turn  int
}

func (c *tapConn) next() sqldrv.Conn {
	c.turn++
	return c.conns[c.turn%len(c.conns)]
}

func (c *tapConn) Prepare(text string) (sqldrv.Stmt, error) { return c.next().Prepare(text) }
func (c *tapConn) Begin() (sqldrv.Tx, error)                { return nil, errors.ErrUnsupported }

func (c *tapConn) Close() (err error) {
	for _, conn := range c.conns {
		err = errors.Join(err, conn.Close())
	}
	return err
}

func (c *tapConn) QueryContext(ctx context.Context, text string, args []sqldrv.NamedValue) (sqldrv.Rows, error) {
	text, err := c.rewrite(text)
	if err != nil {
		return nil, err
	}
	return c.next().(sqldrv.QueryerContext).QueryContext(ctx, text, args)
}

func (c *tapConn) ExecContext(ctx context.Context, text string, args []sqldrv.NamedValue) (sqldrv.Result, error) {
	text, err := c.rewrite(text)
	if err != nil {
		return nil, err
	}
	return c.next().(sqldrv.ExecerContext).ExecContext(ctx, text, args)
}

// counted counts the bytes that a client sends.
func counted(sent *atomic.Int64) func(*sqldriver.Config) {
	return func(c *sqldriver.Config) {
		c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return countedConn{conn.(*net.TCPConn), sent}, nil
		}
	}
}

type countedConn struct {
	*net.TCPConn
	sent *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.sent.Add(int64(len(b)))
	return c.TCPConn.Write(b)
}
