package postgres

import (
	"bytes"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// hears sends a hint, and waits for it.
func hears(t *testing.T, l *drivertest.Listener, db *sql.DB) {
	t.Helper()
	require.NoError(t, require.ErrOf(db.ExecContext(t.Context(), "SELECT pg_notify('dblock_s', 'a 7 0')")))
	select {
	case h := <-l.Hints:
		want := protocol.Hint{Attempt: "a", Grant: protocol.Grant{First: 7, Token: 7}}
		if !reflect.DeepEqual(h, want) {
			t.Errorf("%+v: want %+v", h, want)
		}
	case err := <-l.Ended:
		t.Fatalf("ended: %v", err)
	case <-time.After(patience()):
		t.Fatal("nothing was heard")
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
	require.NoError(t, err)
	return *config
}

func limited(t *testing.T, pool *sql.DB, most int) *sql.DB {
	pool.SetMaxOpenConns(most)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func hidden(c driverConn) sqldriver.Conn    { return hiding{c} }
func wrappable(c driverConn) sqldriver.Conn { return wrapping{c} }

// overPgxPool opens a pool that takes its connections from a pgxpool of three.
func overPgxPool(t *testing.T, db dbtest.Database) *sql.DB {
	t.Helper()
	return limited(t, stdlib.OpenDBFromPool(poolOf(t, db, 3)), 0)
}

// Broken by giving the connection back without closing it: a pgxpool below keeps it, listening.
func TestAListenerTakesNoConnectionBesideThatOfTheHeartbeatsAndLeavesNoneThatListens(t *testing.T) {
	for name, open := range map[string]func(*testing.T, dbtest.Database) *sql.DB{
		"pgx's stdlib":           func(t *testing.T, db dbtest.Database) *sql.DB { return limited(t, db.SQL(t), 3) },
		"a pool without a limit": func(t *testing.T, db dbtest.Database) *sql.DB { return limited(t, db.SQL(t), 0) },
		"a wrapper that shows it": func(t *testing.T, db dbtest.Database) *sql.DB {
			return openWrapped(t, db, 3, wrappable)
		},
		"a pgxpool": overPgxPool,
	} {
		t.Run(name, func(t *testing.T) {
			pool := open(t, dbtest.Postgres(t))
			l := drivertest.Hear(t, inside.Of(NewSQL(pool)).Backend, "s").Started()
			hears(t, l, pool)
			if n := pool.Stats().InUse; n != 1 {
				t.Errorf("%d connections are in use: want that of the heartbeats", n)
			}
			began := time.Now()
			assert.ErrorIs(t, l.Stop(), context.Canceled)
			if took := time.Since(began); took > dbtest.Scale(500*time.Millisecond) {
				t.Errorf("it took %v to end", took)
			}
			assert.NoError(t, l.Up.Close())
			for range 3 { // at once: each is another connection
				conn, err := pool.Conn(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				var channels int
				require.NoError(t, conn.QueryRowContext(t.Context(),
					"SELECT count(*) FROM pg_listening_channels()").Scan(&channels))
				assert.Equal(t, channels, 0, "a connection of the pool listens")
			}
		})
	}
}

// Broken by a wait that no statement interrupts, and by one that is not interrupted where the
// statement was there first.
func TestHeartbeatsDoNotWaitForAListenerAndItMissesNothingBesideThem(t *testing.T) {
	s := newScript(t)
	s.session("s", time.Hour)
	l := drivertest.Hear(t, s.engine, "s").Started()
	beat := func(n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience())
		defer cancel()
		for range n {
			if alive, err := l.Up.Heartbeat(ctx, "s", time.Hour); err != nil || !alive {
				return fmt.Errorf("alive %t: %w", alive, err)
			}
		}
		return nil
	}
	if err := beat(500); err != nil { // while nothing else ends the listener's waits
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- beat(1000) }()
	sent, heard, beating := 0, 0, true
	for beating || heard < sent {
		if beating {
			s.exec("SELECT pg_notify('dblock_s', '')")
			sent++
		}
		select {
		case <-l.Hints:
			heard++
		case err := <-done:
			if beating = false; err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience()):
			t.Fatalf("%d of %d hints were heard", heard, sent)
		}
	}
}

func TestAListenerEndsWithTheConnectionOfTheHeartbeats(t *testing.T) {
	s := newScript(t)
	s.session("s", time.Hour)
	l := drivertest.Hear(t, s.engine, "s").Started()
	assert.NoError(t, l.Up.Close())
	assert.ErrorIs(t, l.Over(), driver.ErrUnavailable)
}

// endless is a connection without deadlines, as one through a tunnel of SSH is.
type endless struct{ net.Conn }

var errEndless = errors.New("no deadlines here")

func (endless) SetReadDeadline(time.Time) error { return errEndless }

// Broken by a listener whose wait nothing can interrupt: no heartbeat is sent any more.
func TestNobodyListensOnAConnectionWithoutDeadlines(t *testing.T) {
	s := newScript(t)
	config := s.pool.Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return endless{conn}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s.session("s", time.Hour)
	l := drivertest.Hear(t, inside.Of(New(pool)).Backend, "s")
	if err := l.Over(); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, errEndless) {
		t.Error(err)
	}
	if alive, err := l.Up.Heartbeat(t.Context(), "s", time.Hour); !alive || err != nil {
		t.Errorf("alive %t: %v", alive, err)
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

// Broken by waiting for a connection for as long as the session lives: nobody listens meanwhile,
// and nobody polls.
func TestAListenerDoesNotWaitForAPoolWithoutAnotherConnection(t *testing.T) {
	pool := limited(t, sql.OpenDB(&onlyOne{Connector: stdlib.GetConnector(configOf(t, dbtest.Postgres(t)))}), 3)
	err := drivertest.Hear(t, inside.Of(NewSQL(pool)).Backend, "s").Over()
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "a first notification") {
		t.Errorf("%v", err)
	}
}

// Broken by listening inside Raw.
func TestAStatementOfTheApplicationsClosesWhileItsConnectionListens(t *testing.T) {
	pool := limited(t, dbtest.Postgres(t).SQL(t), 4)
	statement, err := pool.PrepareContext(t.Context(), "SELECT 1") // on the only connection, which is idle now
	require.NoError(t, err)
	l := drivertest.Hear(t, inside.Of(NewSQL(pool)).Backend, "s").Started()
	closed := make(chan error, 1)
	go func() { closed <- statement.Close() }()
	select {
	case err := <-closed:
		assert.NoError(t, err)
	case <-time.After(patience()):
		t.Error("the statement is not closed while the listener lives")
	}
	hears(t, l, pool)
	_ = l.Stop()
}

// Broken by taking a notification that is late for one that a pooler keeps.
func TestAFirstNotificationThatIsLateIsWaitedFor(t *testing.T) {
	db := dbtest.Postgres(t)
	proxy := dbtest.NewProxy(t, db.Addr(t))
	behind, err := inside.Of(New(db.Through(t, proxy).Pool(t))).Upkeep(t.Context(), "s")
	require.NoError(t, err)
	defer behind.Close()
	direct := inside.Of(New(db.Pool(t))).Backend.(*engine)
	direct.echo = 10 * time.Millisecond
	direct.db = &preceded{direct.db, proxy.Freeze}
	listened := false
	proxy.Watch(func(request []byte) {
		switch {
		case bytes.Contains(request, []byte("LISTEN")):
			listened = true
		case listened: // it asks whether the connection lives
			proxy.Heal()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	assert.ErrorIs(t, (upkeep{behind.(upkeep).conn, direct}).Listen(ctx, "s", cancel, nil), context.Canceled)
}

// preceded is a database that calls before with each single statement.
type preceded struct {
	database
	before func()
}

func (p *preceded) exec(ctx context.Context, s statement) error {
	p.before()
	return p.database.exec(ctx, s)
}

// With a handler of the application's pgx hands over no notification.
func TestTheApplicationsHandlerOfNotificationsIsNoObstacle(t *testing.T) {
	db := dbtest.Postgres(t)
	handler := func(*pgconn.PgConn, *pgconn.Notification) {}
	sender := db.SQL(t)
	t.Run("pgx", func(t *testing.T) {
		config, err := pgxpool.ParseConfig(db.DSN)
		require.NoError(t, err)
		config.ConnConfig.OnNotification = handler
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		l := drivertest.Hear(t, inside.Of(New(pool)).Backend, "s").Started()
		hears(t, l, sender)
		_ = l.Stop()
	})
	t.Run("database/sql", func(t *testing.T) {
		config := configOf(t, db)
		config.OnNotification = handler
		l := drivertest.Hear(t, inside.Of(NewSQL(limited(t, stdlib.OpenDB(config), 4))).Backend, "s").Started()
		require.NoError(t, require.ErrOf(sender.ExecContext(t.Context(), "SELECT pg_notify('dblock_s', 'a 7 0')")))
		select {
		case h := <-l.Hints:
			if !reflect.DeepEqual(h, protocol.Hint{}) {
				t.Errorf("%+v", h)
			}
		case <-time.After(patience()):
			t.Error("nothing was heard")
		}
		_ = l.Stop()
	})
}

// The application's hooks may listen to channels of their own.
// What tells less than a whole grant is a hint that something has come.
func TestAHintIsReadOrNot(t *testing.T) {
	grant := protocol.Grant{First: 7, Token: 7, Contended: true}
	for payload, want := range map[string]protocol.Hint{
		"":              {},
		"a":             {Attempt: "a"},
		"a 7":           {Attempt: "a"},
		"a 7 2":         {Attempt: "a", Grant: grant},
		"a 7 0":         {Attempt: "a", Grant: protocol.Grant{First: 7, Token: 7}},
		"a 5 7 2":       {Attempt: "a", Grant: protocol.Grant{First: 5, Token: 7, Contended: true}},
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
	pool := limited(t, stdlib.OpenDB(configOf(t, db), stdlib.OptionAfterConnect(func(ctx context.Context,
		conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "LISTEN news")
		return err
	})), 4)
	l := drivertest.Hear(t, inside.Of(NewSQL(pool)).Backend, "s").Started()
	require.NoError(t, require.ErrOf(pool.ExecContext(t.Context(), "SELECT pg_notify('news', 'b 8 0')")))
	hears(t, l, pool)
	_ = l.Stop()
}
