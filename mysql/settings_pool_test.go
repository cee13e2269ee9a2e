package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

func (s server) client(t *testing.T, pool *sql.DB) *dblock.Client[*sql.Tx] {
	t.Helper()
	c, err := dblock.New(mysql.New(pool))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, c.Close(ctx))
	})
	return c
}

// handOver has two clients take a name from each other, the second waiting for it.
func handOver(t *testing.T, a, b *dblock.Client[*sql.Tx], times int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	held, err := a.Lock(ctx, "n")
	require.NoError(t, err)
	for range times {
		got := make(chan error, 1)
		var next *dblock.Lock
		go func() {
			var err error
			next, err = b.Lock(ctx, "n")
			got <- err
		}()
		require.ErrorIs(t, require.ErrOf(b.TryLock(ctx, "n")), dblock.ErrNotAcquired)
		require.NoError(t, held.Unlock(ctx))
		require.NoError(t, <-got)
		if next.Token() <= held.Token() {
			t.Fatal("the token did not rise")
		}
		a, b, held = b, a, next
	}
	require.NoError(t, held.Unlock(ctx))
}

// A pool with a short lifetime of connections closes each one when it comes back, and never a
// reserved one.
func TestTheSmallestPoolAndOneWhoseConnectionsLiveShortly(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		for times, set := range map[int]func(pool *sql.DB){
			4:  func(pool *sql.DB) { pool.SetMaxOpenConns(3) },
			10: func(pool *sql.DB) { pool.SetConnMaxLifetime(time.Millisecond); pool.SetMaxIdleConns(0) },
		} {
			one, other := s.open(t, nil), s.open(t, nil)
			set(one)
			set(other)
			handOver(t, s.client(t, one), s.client(t, other), times)
		}
	})
}

// Neither PROCESS nor CONNECTION_ADMIN: a user may end the statements of its own connections.
func TestAUserWithRightsToTheTablesOnly(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.user(t, "all", toTables, "")
		handOver(t, s.client(t, pool), s.client(t, pool), 4)
		e := s.listen(t, pool) // ready: a KILL got through
		is(t, e.end(t), context.Canceled)
	})
}

func TestAUserWithTooFewConnections(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.user(t, "one", toTables, "WITH MAX_USER_CONNECTIONS 1")
		conn, err := pool.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		e := inside.Of(mysql.New(pool)).Backend
		is(t, e.OpenSession(t.Context(), driver.Session{ID: id(), Host: "h", TTL: ttl}), driver.ErrUnavailable)
		_, err = e.Upkeep(t.Context(), "s")
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
			s := start(t, "--innodb-rollback-on-timeout=ON", "--default-time-zone=+05:45",
				"--innodb-lock-wait-timeout=1", "--transaction-isolation=SERIALIZABLE",
				"--init-connect=SET NAMES latin1; SET SESSION sql_mode = 'ANSI'; SET SESSION TRANSACTION ISOLATION "+
					"LEVEL SERIALIZABLE")
			t.Run("rollback on timeout, another time zone", func(t *testing.T) {
				s.lifeOfALock(t, func(*sqldriver.Config) {})
				handOver(t, s.client(t, s.open(t, nil)), s.client(t, s.open(t, nil)), 4)
			})
			t.Run("what init_connect sets", func(t *testing.T) {
				pool := s.user(t, "all", toTables, "") // it does not hold for administrators
				var set string
				require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT @@SESSION.sql_mode").Scan(&set))
				if !strings.Contains(set, "ANSI_QUOTES") {
					t.Fatalf("sql_mode is %q", set)
				}
				handOver(t, s.client(t, pool), s.client(t, pool), 4)
			})
			t.Run("the hour that a time zone has twice", s.hourTwice)
			t.Run("statements in the binary log", func(t *testing.T) {
				s := start(t, "--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT")
				e := inside.Of(mysql.New(s.open(t, nil)))
				err := e.OpenSession(t.Context(), driver.Session{ID: id(), Host: "h", TTL: ttl})
				is(t, err, driver.ErrConfig)
			})
		})
	}
}

// hourTwice makes a time zone whose clock is set back by an hour, and asks for dblock's time half
// an hour before and after. Broken by a clock made of local time.
func (s server) hourTwice(t *testing.T) {
	const back = 1_800_000_000
	for _, row := range []string{
		"INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (9999, 'N')",
		"INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Twice', 9999)",
		"INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation) " +
			"VALUES (9999, 0, 7200, 1, 'S'), (9999, 1, 3600, 0, 'W')",
		fmt.Sprintf("INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) VALUES "+
			"(9999, 0, 0), (9999, %d, 1)", back),
	} {
		s.exec(t, "INSERT "+row)
	}
	conn, err := s.open(t, variable("time_zone", "'Twice'")).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	var walls []string
	for _, at := range []int64{back - 1800, back + 1800} {
		_, err := conn.ExecContext(t.Context(), fmt.Sprintf("SET SESSION timestamp = %d", at))
		require.NoError(t, err)
		var wall string
		var now int64
		require.NoError(t, conn.QueryRowContext(t.Context(),
			"SELECT DATE_FORMAT(NOW(), '%H:%i'), now_us FROM dblock_clock").Scan(&wall, &now))
		if walls = append(walls, wall); now != at*1_000_000 {
			t.Errorf("at %d, which is %s, dblock's clock says %d", at, wall, now)
		}
	}
	assert.Equal(t, walls[0], walls[1], "the hour is there once", walls)
}

// Broken by leaving a connection that beats once in a third of a TTL to the server's own patience.
func TestAServerThatEndsIdleConnectionsSoonKeepsThoseOfHeartbeats(t *testing.T) {
	forSoak(t)
	each(t, func(t *testing.T, s server) {
		e := inside.Of(mysql.New(s.open(t, variable("wait_timeout", "1"))))
		session := id()
		require.NoError(t, e.Backend.OpenSession(t.Context(), driver.Session{ID: session, TTL: ttl}))
		up, err := e.Backend.Upkeep(t.Context(), "s")
		require.NoError(t, err)
		defer up.Close()
		for range 2 {
			alive, err := up.Heartbeat(t.Context(), session, ttl)
			if require.NoError(t, err); !alive {
				t.Error("the session is dead")
			}
			time.Sleep(1300 * time.Millisecond)
		}
	})
}

// Broken by a client that takes the last connections of a pool, so that every query of the
// application hangs.
func TestASecondClientThatWouldTakeTheLastConnectionsIsRefused(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, nil)
		pool.SetMaxOpenConns(4)
		first, second := s.client(t, pool), s.client(t, pool)
		held, err := first.Lock(t.Context(), "n")
		require.NoError(t, err)
		_, err = second.Lock(t.Context(), "m")
		if !errors.Is(err, dblock.ErrConfig) || !strings.Contains(err.Error(),
			"the pool allows 4 connections, and the 2 clients") {
			t.Errorf("the second client: %v", err)
		}
		require.NoError(t, pool.PingContext(t.Context()))
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, first.Close(t.Context()))
		_, err = second.Lock(t.Context(), "m")
		require.NoError(t, err)
	})
}
