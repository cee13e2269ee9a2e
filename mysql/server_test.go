package mysql_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/mysql"
)

// forSoak leaves a test that needs real time or restarts to scripts/soak.
func forSoak(t *testing.T) {
	t.Helper()
	if soak(0, 1) == 0 {
		t.Skip("scripts/soak runs it")
	}
}

// soak is how often a test does what chance decides: seldom in the gate, often in a soak.
func soak(gate, soak int) int {
	if os.Getenv("DBLOCK_TEST_SOAK") == "" {
		return gate
	}
	return soak
}

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// patience is how long a test waits for what must happen.
var patience = dbtest.Scale(30 * time.Second)

const ttl = time.Minute

// server is a database of one test on MySQL or MariaDB.
type server struct {
	dbtest.Database
	pool *sql.DB // of the test itself
}

// each runs a test on both servers.
func each(t *testing.T, test func(t *testing.T, s server)) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Migrated(t, kind)
			test(t, server{db, db.SQL(t)})
		})
	}
}

// migrate runs the migrations as they stand, statement by statement, on one connection.
func (s server) migrate(t *testing.T) {
	t.Helper()
	up, err := migrations.SQL(migrations.MySQL, false)
	require.NoError(t, err)
	conn, err := s.pool.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	up = regexp.MustCompile(`(?m) *--.*$`).ReplaceAllString(up, "")
	for statement := range strings.SplitSeq(up, ";\n") {
		if strings.TrimSpace(statement) != "" {
			_, err := conn.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
	}
}

// open makes a pool with the application's own idea of a DSN. By default it turns
// innodb_snapshot_isolation off, which is on in MariaDB from 11.8: with it a transaction that loses
// a race gets ErrRetry, whatever the race was about.
func (s server) open(t *testing.T, change func(*sqldriver.Config)) *sql.DB {
	t.Helper()
	if change == nil && s.Kind == dbtest.KindMariaDB {
		change = variable("innodb_snapshot_isolation", "0")
	}
	config, err := sqldriver.ParseDSN(s.DSN)
	require.NoError(t, err)
	if change != nil {
		change(config)
	}
	connector, err := sqldriver.NewConnector(config)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// actor is an engine whose work runs on one known connection, so that a test can see it wait.
type actor struct {
	driver.Backend
	session string
	pool    *sql.DB
	conn    int64
	locked  *atomic.Bool // it has found a row locked since blocked was called
}

func (s server) actor(t *testing.T) actor {
	t.Helper()
	pool := s.open(t, nil)
	pool.SetMaxOpenConns(1)
	a := on(t, pool)
	a.locked = new(atomic.Bool)
	mysql.Patient(a.Backend, func() { a.locked.Store(true) })
	require.NoError(t, pool.QueryRow("SELECT CONNECTION_ID()").Scan(&a.conn))
	return a
}

// on returns an actor that works on any connection of a pool.
func on(t *testing.T, pool *sql.DB) actor {
	t.Helper()
	a := actor{Backend: inside.Of(mysql.New(pool)).Backend, session: id(), pool: pool}
	require.NoError(t, a.OpenSession(t.Context(), driver.Session{ID: a.session, Host: "h", App: "test", TTL: ttl}))
	return a
}

// attending is an actor as an application has it: a client attends its engine.
func (s server) attending(t *testing.T) actor {
	t.Helper()
	a := on(t, s.open(t, nil))
	t.Cleanup(a.Attend("", ttl))
	return a
}

func (a actor) request(name string) protocol.Request {
	return protocol.Request{Name: name, Session: a.session, Host: "h", Thread: id(), Attempt: id(), Patient: true}
}

// units is a request for units of a name.
func (a actor) units(name string, n, of int) protocol.Request {
	r := a.request(name)
	r.Units, r.Of = n, of
	return r
}

// reader is a request to share a name.
func (a actor) reader(name string) protocol.Request { return a.units(name, 1, protocol.Readers) }

// take takes a name that is free.
func (a actor) take(t *testing.T, name string) protocol.Held {
	t.Helper()
	return a.share(t, a.request(name))
}

// share makes a request that is granted at once.
func (a actor) share(t *testing.T, r protocol.Request) protocol.Held {
	t.Helper()
	grant, taken, err := drivertest.Take(t.Context(), a, r)
	if err != nil || !taken {
		t.Fatalf("%+v: taken %v, %v", r, taken, err)
	}
	return protocol.Held{Name: r.Name, Session: r.Session, Token: grant.Token, Shared: r.Units > 0}
}

// enqueue queues for a whole name, and returns the attempt.
func (a actor) enqueue(t *testing.T, name string) string {
	t.Helper()
	return a.wait(t, a.request(name))
}

// wait makes a request that waits, and returns its attempt.
func (a actor) wait(t *testing.T, r protocol.Request) string {
	t.Helper()
	if _, outcome, err := drivertest.Join(t.Context(), a, r); err != nil || outcome != protocol.Queued {
		t.Fatalf("%+v: outcome %v, %v", r, outcome, err)
	}
	return r.Attempt
}

// used is how many units of a name are held, as its row and its shares both say.
func (s server) used(t *testing.T, name string) int64 {
	t.Helper()
	n := s.number(t, "SELECT shared_units FROM dblock_locks WHERE name = ?", name)
	if sum := s.number(t, "SELECT COALESCE(SUM(units), 0) FROM dblock_shares WHERE name = ?", name); sum != n {
		t.Fatalf("%d units in the row of %s, %d in its shares", n, name, sum)
	}
	return n
}

// attempts are those that were granted.
func attempts(next []protocol.Handoff) (list []string) {
	for _, h := range next {
		list = append(list, h.Attempt)
	}
	return list
}

func (a actor) look(t *testing.T, name string) driver.State {
	t.Helper()
	states, err := a.Read(t.Context(), a.session, []string{name}, 0)
	require.NoError(t, err)
	require.Equal(t, len(states), 1, "states of", name)
	return states[0]
}

// blocked waits until the actor has found a row locked, or its statement waits for one; of one that
// attends, until a statement waits in turn. The tables of information_schema do not show the waits:
// they do not change while they are read often.
func (s server) blocked(t *testing.T, a actor) {
	t.Helper()
	if a.locked == nil {
		a.locked = new(atomic.Bool)
		dbtest.Eventually(t, "a statement to wait in turn", func() bool {
			a.conn = s.number(t, "SELECT COALESCE(MAX(id), -1) FROM "+s.Processes()+" WHERE db = DATABASE() AND "+
				"id <> CONNECTION_ID() AND info LIKE '%-- name: LockRowInTurn %'")
			return a.conn >= 0
		})
	}
	thread := fmt.Sprintf("thread id %d,", a.conn)
	defer a.locked.Store(false)
	dbtest.Eventually(t, "the statement to wait", func() bool {
		if a.locked.Load() {
			return true
		}
		var kind, name, status string
		require.NoError(t, s.pool.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status))
		for transaction := range strings.SplitSeq(status, "---TRANSACTION ") {
			if strings.Contains(transaction, "LOCK WAIT") && strings.Contains(transaction, thread) {
				return true
			}
		}
		return false
	})
}

// transaction is the test's own, at READ COMMITTED, with statements already run.
func (s server) transaction(t *testing.T, text string, args ...any) *sql.Tx {
	t.Helper()
	tx, err := s.pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.Exec(text, args...)
	require.NoError(t, err)
	return tx
}

func (s server) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	_, err := s.pool.Exec(text, args...)
	require.NoError(t, err)
}

// number is a single number from the database; -1: no row.
func (s server) number(t *testing.T, text string, args ...any) int64 {
	t.Helper()
	var n int64
	err := s.pool.QueryRow(text, args...).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return -1
	}
	require.NoError(t, err)
	return n
}

// outcome is what a call returned that runs while the test goes on.
type outcome[T any] struct {
	value T
	err   error
}

func start[T any](t *testing.T, call func(ctx context.Context) (T, error)) <-chan outcome[T] {
	c := make(chan outcome[T], 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	go func() {
		defer cancel()
		v, err := call(ctx)
		c <- outcome[T]{v, err}
	}()
	return c
}

// behind has a call of an actor's wait for a transaction of the test's, commits that, and returns
// what came of the call.
func behind[T any](
	t *testing.T, s server, a actor, ahead *sql.Tx, call func(ctx context.Context) (T, error),
) outcome[T] {
	t.Helper()
	if a.locked != nil {
		a.locked.Store(false)
	}
	c := start(t, call)
	s.blocked(t, a)
	require.NoError(t, ahead.Commit())
	return <-c
}

// doing is a call that runs an op.
func (a actor) doing(op protocol.Op) func(ctx context.Context) (protocol.Result, error) {
	return func(ctx context.Context) (protocol.Result, error) { return driver.Do(ctx, a, op) }
}

// waiting waits until so many transactions of the database wait for a row. innodb_trx is a copy
// that the server makes anew once nobody has looked at it for 100 ms.
func (s server) waiting(t *testing.T, want int64) {
	t.Helper()
	dbtest.Eventually(t, fmt.Sprint(want, " statements to wait"), func() bool {
		time.Sleep(150 * time.Millisecond)
		return s.number(t, "SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN "+s.Processes()+
			" p ON p.id = x.trx_mysql_thread_id WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()") == want
	})
}

// stopAt stops the nth request with a text on its way to the server: reached is closed then, and
// goOn lets it go. It takes the place of the one before.
func stopAt(t *testing.T, p *dbtest.Proxy, text string, nth int32) (reached <-chan struct{}, goOn func()) {
	stopped, gone := make(chan struct{}), make(chan struct{})
	goOn = sync.OnceFunc(func() { close(gone) })
	t.Cleanup(goOn) // before the proxy closes, which waits for it
	var seen atomic.Int32
	p.Watch(func(request []byte) {
		if bytes.Contains(request, []byte(text)) && seen.Add(1) == nth {
			close(stopped)
			<-gone
		}
	})
	return stopped, goOn
}

// soon waits for what must happen.
func soon(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited for %s in vain", what)
	}
}

func is(t *testing.T, err, kind error) {
	t.Helper()
	require.ErrorIs(t, err, kind, "error")
}

func id() string { return rand.Text() }

// engine is one on a pool of its own, as an application has it.
func (s server) engine(t *testing.T) driver.Backend {
	t.Helper()
	return inside.Of(mysql.New(s.open(t, nil))).Backend
}

// expire ends a session's time.
func (s server) expire(t *testing.T, a actor) {
	t.Helper()
	s.exec(t, "UPDATE dblock_heartbeats SET expires_at = 1 WHERE session_id = ?", a.session)
}

// buries has a session ended that has expired.
func (a actor) buries(t *testing.T, other actor) {
	t.Helper()
	if dead, err := a.Expire(t.Context(), other.session); err != nil || !dead {
		t.Fatal(dead, err)
	}
}

// sole is the only hand-over that there may be.
func sole(next []protocol.Handoff, err error) (protocol.Handoff, error) {
	if len(next) > 1 {
		return protocol.Handoff{}, fmt.Errorf("%d were granted: %+v", len(next), next)
	}
	return append(next, protocol.Handoff{})[0], err
}

func third[T, U any](_ T, _ U, err error) error { return err }
