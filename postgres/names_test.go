package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/postgres"
)

// called counts a database's connections by application_name, without that of the test.
func called(t *testing.T, look *sql.DB) map[string]int {
	t.Helper()
	rows, err := look.QueryContext(t.Context(),
		"SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	require.NoError(t, err)
	defer rows.Close()
	names := map[string]int{}
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names[name]++
	}
	require.NoError(t, rows.Err())
	return names
}

// eventually waits until so many connections are the library's, and all others, if there are any,
// the application's.
func eventually(t *testing.T, look *sql.DB, ours int, what string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		names := called(t, look)
		total := 0
		for _, n := range names {
			total += n
		}
		if names["dblock/orders"] == ours && names["theirs"] == total-ours {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v: want %d of dblock/orders, and theirs else", what, names, ours)
		}
	}
}

// The pool's hook may set up what a connection needs each time that it is lent out: without it the
// library's own connections would find no tables.
func TestTheLibrarysConnectionsArePreparedAsThePoolsAre(t *testing.T) {
	db := dbtest.Postgres(t)
	if _, err := db.SQL(t).ExecContext(t.Context(), "ALTER DATABASE "+strings.TrimPrefix(path(t, db), "/")+
		" SET search_path = nowhere"); err != nil {
		t.Fatal(err)
	}
	prepare := func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		_, err := conn.Exec(ctx, "SET search_path = public")
		return err == nil, err
	}
	for what, hook := range map[string]func(c *pgxpool.Config){
		"PrepareConn": func(c *pgxpool.Config) { c.PrepareConn = prepare },
		"BeforeAcquire": func(c *pgxpool.Config) {
			//lint:ignore SA1019 an application may still use it
			c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { ok, _ := prepare(ctx, conn); return ok }
		},
	} {
		config, err := pgxpool.ParseConfig(db.DSN)
		require.NoError(t, err)
		hook(config)
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		client := clientOf(t, postgres.New(pool))
		l, err := client.Lock(t.Context(), what)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return client.Guard(t.Context(), tx, l)
		}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		require.NoError(t, l.Unlock(t.Context()))
	}
}

func path(t *testing.T, db dbtest.Database) string {
	t.Helper()
	u, err := url.Parse(db.DSN)
	require.NoError(t, err)
	return u.Path
}

// The connections of the library's own bear its name: for heartbeats, to listen, for work beside a
// transaction; of advisory locks one for those that are held, and one for each wait.
func TestConnectionsOfTheLibrarySayWhoseTheyAre(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, db dbtest.Database, look *sql.DB){
		"pgx": func(t *testing.T, db dbtest.Database, look *sql.DB) {
			pool := db.Pool(t)
			c := orders(t, postgres.New(pool))
			l := hold(t, look, c, 1)
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer tx.Rollback(context.Background())
			require.NoError(t, c.Guard(t.Context(), tx, l))
			eventually(t, look, 2, "with a guard")
		},
		"database/sql": func(t *testing.T, db dbtest.Database, look *sql.DB) {
			pool := db.SQL(t)
			pool.SetMaxOpenConns(8)
			hold(t, look, orders(t, postgres.NewSQL(pool)), 2)
		},
		"a pgxpool below": func(t *testing.T, db dbtest.Database, look *sql.DB) { // which keeps what is given back
			pool := stdlib.OpenDBFromPool(db.Pool(t))
			t.Cleanup(func() { _ = pool.Close() })
			pool.SetMaxOpenConns(4)
			hold(t, look, orders(t, postgres.NewSQL(pool)), 2)
		},
		"advisory": func(t *testing.T, db dbtest.Database, look *sql.DB) {
			pool := db.Pool(t)
			require.NoError(t, pool.Ping(t.Context()))
			c := advisory(t, pool)
			l, err := c.Lock(t.Context(), "n")
			require.NoError(t, err)
			eventually(t, look, 1, "while it is held")
			next := make(chan error, 1)
			go func() { next <- c.Do(t.Context(), "n", func(context.Context, dblock.Handle) error { return nil }) }()
			eventually(t, look, 2, "while it is waited for")
			assert.NoError(t, errors.Join(l.Unlock(t.Context()), <-next))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.Postgres(t)
			look := db.SQL(t)
			look.SetMaxOpenConns(1)
			db.DSN += "&application_name=theirs"
			t.Run("open", func(t *testing.T) { test(t, db, look) })
			eventually(t, look, 0, "after Close")
		})
	}
}

func orders[TX any](t *testing.T, engine dblock.Engine[TX]) *dblock.Client[TX] {
	t.Helper()
	c, err := dblock.New(engine, dblock.WithApp("orders"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}

// hold has a client hold a lock, and then wait for it again; it counts the library's connections
// each time.
func hold[TX any](t *testing.T, look *sql.DB, c *dblock.Client[TX], keeps int) *dblock.Lock {
	t.Helper()
	l, err := c.Lock(t.Context(), "n")
	require.NoError(t, err)
	eventually(t, look, keeps, "with a lock")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = c.Lock(ctx, "n")
	}()
	t.Cleanup(func() { cancel(); <-over })
	for deadline := time.Now().Add(10 * time.Second); !c.Stats().Listening; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody listens")
		}
	}
	eventually(t, look, keeps, "with a waiter")
	return l
}
