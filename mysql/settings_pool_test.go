package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/dbtest"
	"github.com/dblock-go/dblock/mysql"
)

func (s server) client(t *testing.T, pool *sql.DB) *dblock.Client[*sql.Tx] {
	t.Helper()
	c, err := dblock.New(mysql.New(pool))
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must(t, c.Close(ctx))
	})
	return c
}

// handOver has two clients take a name from each other, the second waiting for it.
func handOver(t *testing.T, a, b *dblock.Client[*sql.Tx], times int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	held, err := a.Lock(ctx, "n")
	must(t, err)
	for range times {
		got := make(chan error, 1)
		var next *dblock.Lock[*sql.Tx]
		go func() {
			var err error
			next, err = b.Lock(ctx, "n")
			got <- err
		}()
		if _, err := b.TryLock(ctx, "n"); !errors.Is(err, dblock.ErrNotAcquired) {
			t.Fatal(err)
		}
		must(t, held.Unlock(ctx))
		must(t, <-got)
		if next.Token() <= held.Token() {
			t.Fatal("the token did not rise")
		}
		a, b, held = b, a, next
	}
	must(t, held.Unlock(ctx))
}

func TestTheSmallestPool(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pools := [2]*sql.DB{s.open(t, nil), s.open(t, nil)}
		for _, pool := range pools {
			pool.SetMaxOpenConns(3)
		}
		handOver(t, s.client(t, pools[0]), s.client(t, pools[1]), 4)
	})
}

// The pool closes a connection when it comes back, and never one that is reserved.
func TestAPoolWhoseConnectionsLiveShortly(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pools := [2]*sql.DB{s.open(t, nil), s.open(t, nil)}
		for _, pool := range pools {
			pool.SetConnMaxLifetime(time.Millisecond)
			pool.SetMaxIdleConns(0)
		}
		handOver(t, s.client(t, pools[0]), s.client(t, pools[1]), 10)
	})
}

// as makes a user with the rights to the tables and no others, and returns a pool of its own.
func (s server) as(t *testing.T, limits string) *sql.DB {
	t.Helper()
	config, err := sqldriver.ParseDSN(s.DSN)
	must(t, err)
	name := config.DBName + "@'%'"
	s.exec(t, "CREATE USER "+name+" IDENTIFIED BY 'x' "+limits)
	t.Cleanup(func() { s.exec(t, "DROP USER "+name) })
	s.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+config.DBName+".* TO "+name)
	return s.open(t, func(c *sqldriver.Config) { c.User, c.Passwd = config.DBName, "x" })
}

// Neither PROCESS nor CONNECTION_ADMIN: a user may end the statements of its own connections.
func TestAUserWithRightsToTheTablesOnly(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.as(t, "")
		handOver(t, s.client(t, pool), s.client(t, pool), 4)
		e := s.listen(t, pool) // ready: a KILL got through
		is(t, e.end(t), context.Canceled)
	})
}

func TestAUserWithTooFewConnections(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.as(t, "WITH MAX_USER_CONNECTIONS 1")
		conn, err := pool.Conn(t.Context())
		must(t, err)
		defer conn.Close()
		e := mysql.New(pool).Backend
		is(t, e.OpenSession(t.Context(), driver.Session{ID: id(), Host: "h", TTL: ttl}), driver.ErrUnavailable)
		_, err = e.Upkeep(t.Context())
		is(t, err, driver.ErrUnavailable)
	})
}

// What only a server's command line or configuration sets.
func TestServersThatAreSetUpOtherwise(t *testing.T) {
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			start := func(t *testing.T, settings ...string) server {
				db := dbtest.Own(t, kind, settings...).Empty(t)
				s := server{db, db.SQL(t)}
				s.migrate(t)
				return s
			}
			t.Run("rollback on timeout, another time zone", func(t *testing.T) {
				s := start(t, "--innodb-rollback-on-timeout=ON", "--default-time-zone=+05:45", "--innodb-lock-wait-timeout=1", "--transaction-isolation=SERIALIZABLE")
				s.lifeOfALock(t, func(*sqldriver.Config) {})
				handOver(t, s.client(t, s.open(t, nil)), s.client(t, s.open(t, nil)), 4)
			})
			t.Run("statements in the binary log", func(t *testing.T) {
				s := start(t, "--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT")
				err := mysql.New(s.open(t, nil)).Backend.OpenSession(t.Context(), driver.Session{ID: id(), Host: "h", TTL: ttl})
				is(t, err, driver.ErrConfig)
			})
		})
	}
}

// Broken by leaving a connection that beats once in a third of a TTL to the server's own patience.
func TestAServerThatEndsIdleConnectionsSoonKeepsThoseOfHeartbeats(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		e := mysql.New(s.open(t, variable("wait_timeout", "1")))
		session := id()
		must(t, e.Backend.OpenSession(t.Context(), driver.Session{ID: session, TTL: ttl}))
		up, err := e.Backend.Upkeep(t.Context())
		must(t, err)
		defer up.Close()
		for range 2 {
			alive, err := up.Heartbeat(t.Context(), session, ttl)
			if must(t, err); !alive {
				t.Error("the session is dead")
			}
			time.Sleep(1300 * time.Millisecond)
		}
	})
}
