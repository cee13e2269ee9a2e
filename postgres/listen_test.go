package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/internal/driver"
)

// listener is a Listen that runs.
type listener struct {
	*testing.T
	ready chan struct{}
	hints chan driver.Hint
	ended chan error
	stop  context.CancelFunc
}

func listenThrough(t *testing.T, backend driver.Backend) *listener {
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{t, make(chan struct{}), make(chan driver.Hint, 100), make(chan error, 1), cancel}
	t.Cleanup(cancel)
	go func() {
		l.ended <- backend.Listen(ctx, "s", func() { close(l.ready) }, func(h driver.Hint) { l.hints <- h })
	}()
	return l
}

// up waits until the listener is ready.
func (l *listener) up() *listener {
	l.Helper()
	select {
	case <-l.ready:
	case err := <-l.ended:
		l.Fatalf("ended: %v", err)
	case <-time.After(patience()):
		l.Fatal("the listener is not ready")
	}
	return l
}

// end is what Listen returns.
func (l *listener) end() error {
	l.Helper()
	select {
	case err := <-l.ended:
		return err
	case <-time.After(patience()):
		l.Fatal("the listener goes on")
		return nil
	}
}

// hears sends a hint, and waits for it.
func (l *listener) hears(db *sql.DB) {
	l.Helper()
	if _, err := db.ExecContext(l.Context(), "SELECT pg_notify('dblock_s', 'a 7 0')"); err != nil {
		l.Fatal(err)
	}
	select {
	case h := <-l.hints:
		if want := (driver.Hint{Attempt: "a", Grant: driver.Grant{First: 7, Token: 7}}); !reflect.DeepEqual(h, want) {
			l.Errorf("%+v: want %+v", h, want)
		}
	case err := <-l.ended:
		l.Fatalf("ended: %v", err)
	case <-time.After(patience()):
		l.Fatal("nothing was heard")
	}
}

func patience() time.Duration { return dbtest.Scale(10 * time.Second) }

// driverConn is what pgx's stdlib gives to database/sql.
type driverConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.NamedValueChecker
	sqldriver.SessionResetter
	sqldriver.Pinger
}

// hiding is another driver, to all appearances.
type hiding struct{ driverConn }

// wrapping is a wrapper that shows what is in it, as otelsql's does.
type wrapping struct{ driverConn }

func (w wrapping) Raw() sqldriver.Conn { return w.driverConn }

type wrapped struct {
	sqldriver.Connector
	in func(driverConn) sqldriver.Conn
}

func (w wrapped) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return w.in(conn.(driverConn)), nil
}

// openWrapped opens a pool of so many connections; 0: any number.
func openWrapped(t *testing.T, db dbtest.Database, most int, in func(driverConn) sqldriver.Conn) *sql.DB {
	t.Helper()
	return limited(t, sql.OpenDB(wrapped{stdlib.GetConnector(configOf(t, db)), in}), most)
}

func configOf(t *testing.T, db dbtest.Database) pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	return *config
}

func limited(t *testing.T, pool *sql.DB, most int) *sql.DB {
	pool.SetMaxOpenConns(most)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func hidden(c driverConn) sqldriver.Conn    { return hiding{c} }
func wrappable(c driverConn) sqldriver.Conn { return wrapping{c} }

// overPgxPool opens a pool that takes its connections from a pgxpool of four.
func overPgxPool(t *testing.T, db dbtest.Database, most int) *sql.DB {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = listeningPool
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return limited(t, stdlib.OpenDBFromPool(pool), most)
}

// Broken by giving the connection back without closing it: a pgxpool below keeps it, listening.
func TestAListenerLeavesNoConnectionThatListens(t *testing.T) {
	for name, open := range map[string]func(*testing.T, dbtest.Database) *sql.DB{
		"pgx's stdlib":            func(t *testing.T, db dbtest.Database) *sql.DB { return limited(t, db.SQL(t), 4) },
		"a pool without a limit":  func(t *testing.T, db dbtest.Database) *sql.DB { return limited(t, db.SQL(t), 0) },
		"a wrapper that shows it": func(t *testing.T, db dbtest.Database) *sql.DB { return openWrapped(t, db, 4, wrappable) },
		"a pgxpool of known size": func(t *testing.T, db dbtest.Database) *sql.DB { return overPgxPool(t, db, 4) },
	} {
		t.Run(name, func(t *testing.T) {
			pool := open(t, dbtest.Postgres(t))
			l := listenThrough(t, NewSQL(pool).Backend).up()
			l.hears(pool)
			if n := pool.Stats().InUse; n != 1 {
				t.Errorf("%d connections are in use: want that of the listener", n)
			}
			began := time.Now()
			l.stop()
			if err := l.end(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if took := time.Since(began); took > dbtest.Scale(500*time.Millisecond) {
				t.Errorf("it took %v to end", took)
			}
			for range listeningPool { // at once: each is another connection
				conn, err := pool.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				var channels int
				if err := conn.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_listening_channels()").Scan(&channels); err != nil {
					t.Fatal(err)
				}
				if channels != 0 {
					t.Error("a connection of the pool listens")
				}
			}
		})
	}
}

func TestAPoolThatCannotSpareAConnectionIsNotListenedThrough(t *testing.T) {
	unlimited := func(t *testing.T, db dbtest.Database) *sql.DB { return overPgxPool(t, db, 0) }
	for name, c := range map[string]struct {
		open   func(*testing.T, dbtest.Database) *sql.DB
		lent   int // connections that the application has
		want   error
		says   string
		driver bool // it is the driver that cannot
	}{
		"a pool of 3": {
			func(t *testing.T, db dbtest.Database) *sql.DB { return limited(t, db.SQL(t), 3) }, 0, driver.ErrUnsupported, "allows 3 connections", false},
		"another driver": {
			func(t *testing.T, db dbtest.Database) *sql.DB { return openWrapped(t, db, 4, hidden) }, 0, driver.ErrUnsupported, "no LISTEN", true},
		"a pgxpool of unknown size": {unlimited, 0, driver.ErrUnsupported, "SetMaxOpenConns", false},
		"one free connection": {
			func(t *testing.T, db dbtest.Database) *sql.DB { return limited(t, db.SQL(t), 4) }, 3, driver.ErrUnavailable, "only one free connection", false},
	} {
		t.Run(name, func(t *testing.T) {
			pool := c.open(t, dbtest.Postgres(t))
			for range c.lent {
				conn, err := pool.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			err := listenThrough(t, NewSQL(pool).Backend).end()
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || errors.Is(err, driver.ErrCannotListen) != c.driver {
				t.Errorf("%v", err)
			}
			if n := pool.Stats().InUse; n != c.lent {
				t.Errorf("%d connections are in use: want %d", n, c.lent)
			}
			if closed := pool.Stats().MaxIdleClosed; name == "another driver" && (closed != 0 || pool.Stats().OpenConnections != 1) {
				t.Errorf("the connection did not go back as it came")
			}
		})
	}
}

// onlyOne makes one connection, and no other before the context ends.
type onlyOne struct {
	sqldriver.Connector
	made atomic.Bool
}

func (o *onlyOne) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if o.made.CompareAndSwap(false, true) {
		return o.Connector.Connect(ctx)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Another may take the last free connection right after the listener has looked. Broken by waiting
// for a connection for as long as the session lives.
func TestAListenerThatHasTheLastConnectionGivesItBack(t *testing.T) {
	pool := limited(t, sql.OpenDB(&onlyOne{Connector: stdlib.GetConnector(configOf(t, dbtest.Postgres(t)))}), 4)
	err := listenThrough(t, NewSQL(pool).Backend).end()
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "no other connection") {
		t.Errorf("%v", err)
	}
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d connections are in use", n)
	}
}

// Broken by listening inside Raw.
func TestAStatementOfTheApplicationsClosesWhileItsConnectionListens(t *testing.T) {
	pool := limited(t, dbtest.Postgres(t).SQL(t), 4)
	statement, err := pool.PrepareContext(t.Context(), "SELECT 1") // on the only connection, which is idle now
	if err != nil {
		t.Fatal(err)
	}
	l := listenThrough(t, NewSQL(pool).Backend).up()
	closed := make(chan error, 1)
	go func() { closed <- statement.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience()):
		t.Error("the statement is not closed while the listener lives")
	}
	l.hears(pool)
	l.stop()
	_ = l.end()
}

// With a handler of the application's pgx hands over no notification.
func TestTheApplicationsHandlerOfNotificationsIsNoObstacle(t *testing.T) {
	db := dbtest.Postgres(t)
	handler := func(*pgconn.PgConn, *pgconn.Notification) {}
	sender := db.SQL(t)
	t.Run("pgx", func(t *testing.T) {
		config, err := pgxpool.ParseConfig(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.OnNotification = handler
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		l := listenThrough(t, New(pool).Backend).up()
		l.hears(sender)
		l.stop()
		_ = l.end()
	})
	t.Run("database/sql", func(t *testing.T) {
		config := configOf(t, db)
		config.OnNotification = handler
		l := listenThrough(t, NewSQL(limited(t, stdlib.OpenDB(config), 4)).Backend).up()
		if _, err := sender.ExecContext(t.Context(), "SELECT pg_notify('dblock_s', 'a 7 0')"); err != nil {
			t.Fatal(err)
		}
		select {
		case h := <-l.hints:
			if !reflect.DeepEqual(h, driver.Hint{}) {
				t.Errorf("%+v", h)
			}
		case <-time.After(patience()):
			t.Error("nothing was heard")
		}
		l.stop()
		_ = l.end()
	})
}

// The application's hooks may listen to channels of their own.
// What tells less than a whole grant is a hint that something has come.
func TestAHintIsReadOrNot(t *testing.T) {
	grant := driver.Grant{First: 7, Token: 7, Contended: true}
	for payload, want := range map[string]driver.Hint{
		"":              {},
		"a":             {Attempt: "a"},
		"a 7":           {Attempt: "a"},
		"a 7 2":         {Attempt: "a", Grant: grant},
		"a 7 0":         {Attempt: "a", Grant: driver.Grant{First: 7, Token: 7}},
		"a 5 7 2":       {Attempt: "a", Grant: driver.Grant{First: 5, Token: 7, Contended: true}},
		"a 5 x 2":       {Attempt: "a"},
		"a 5 7 x":       {Attempt: "a"},
		"a x 7 2":       {Attempt: "a"},
		"a 5 6 7 2":     {Attempt: "a"},
		"a 7 2 b c d e": {Attempt: "a"},
	} {
		if is := hint(payload); !reflect.DeepEqual(is, want) {
			t.Errorf("%q: %+v, want %+v", payload, is, want)
		}
	}
}

func TestAListenerKnowsItsChannel(t *testing.T) {
	db := dbtest.Postgres(t)
	pool := limited(t, stdlib.OpenDB(configOf(t, db), stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "LISTEN news")
		return err
	})), 4)
	l := listenThrough(t, NewSQL(pool).Backend).up()
	if _, err := pool.ExecContext(t.Context(), "SELECT pg_notify('news', 'b 8 0')"); err != nil {
		t.Fatal(err)
	}
	l.hears(pool)
	l.stop()
	_ = l.end()
}
