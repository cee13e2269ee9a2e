//go:build unix

package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// places are the two places on one server that have dblock's tables, as with a schema for each
// tenant: those of the clients, and another.
type places struct {
	writes string                                    // the table of the application, wherever a connection looks
	leave  string                                    // has a connection look elsewhere; "": there is one place
	home   string                                    // has it look at home again
	rows   string                                    // counts what is in the tables there
	engine func(pool *sql.DB) dblock.Engine[*sql.Tx] // works there
}

// rowsIn counts rows of locks and sessions.
func rowsIn(place string) string {
	return fmt.Sprintf("SELECT (SELECT count(*) FROM %s.dblock_sessions) + count(*) FROM %[1]s.dblock_locks", place)
}

// twoPlaces makes the other place. SQLite has none.
func (a *application) twoPlaces() places {
	a.Helper()
	const other = "elsewhere"
	switch a.db.Kind {
	case dbtest.KindSQLite:
		return places{writes: "writes"}
	case dbtest.KindPostgres:
		require.NoError(a, migrate.Up(a.Context(), a.sql, a.db.Engine, migrate.Locks.In(other)))
		return places{"public.writes", "SET search_path TO " + other, "RESET search_path", rowsIn(other),
			func(pool *sql.DB) dblock.Engine[*sql.Tx] { return postgres.NewSQL(pool, postgres.Schema(other)) }}
	}
	var home string
	require.NoError(a, a.sql.QueryRowContext(a.Context(), "SELECT DATABASE()").Scan(&home))
	there := home + "_" + other
	a.exec("CREATE DATABASE " + there)
	a.Cleanup(func() { _, _ = a.sql.ExecContext(context.Background(), "DROP DATABASE "+there) })
	require.NoError(a, migrate.Up(a.Context(), a.sql, a.db.Engine, migrate.Locks.In(there)))
	return places{home + ".writes", "USE " + there, "USE " + home, rowsIn(there),
		func(pool *sql.DB) dblock.Engine[*sql.Tx] { return mysql.New(pool, mysql.Database(there)) }}
}

// stray leaves connections of the pools elsewhere, until ctx ends.
func (a *application) stray(ctx context.Context) {
	if a.places.leave == "" {
		return
	}
	tick := time.NewTicker(5 * time.Millisecond)
	for i := 0; ctx.Err() == nil; i++ {
		<-tick.C
		b := a.branches[i%len(a.branches)]
		within, cancel := context.WithTimeout(ctx, ttl/10)
		if conn, err := b.pool.Conn(within); err == nil {
			to := a.places.leave
			if i%5 == 0 {
				to = a.places.home
			}
			if _, err := conn.ExecContext(within, to); err == nil {
				a.tried("connections left elsewhere", 1)
			}
			_ = conn.Close()
		}
		cancel()
	}
}

// leftElsewhere looks into the tables of the other place, in which no client works.
func (a *application) leftElsewhere() {
	a.Helper()
	if a.places.rows == "" || a.bug != "" {
		return
	}
	if n := a.number0(a.places.rows); n > 0 {
		a.Errorf("%s: %d rows of locks and sessions in another place", elsewhere, n)
	}
}

// takesFrom is the bug of an engine that takes one name of two from another place.
func takesFrom(there driver.Backend) fakedb.Hook {
	var n atomic.Int64
	return func(ctx context.Context, c *fakedb.Call) error {
		take, takes := c.Op().(protocol.Take)
		if !takes || n.Add(1)%2 > 0 {
			return c.Do(ctx)
		}
		result, err := driver.Do(ctx, there, take)
		c.Results = []protocol.Result{result}
		return err
	}
}

// credulous is the bug of an engine that finds no transaction, and goes on.
type credulous struct{ driver.Tx }

func (c credulous) Lock(ctx context.Context, name string, may driver.Pass, wait bool, aside driver.OnSideConn) (
	driver.State, bool, error,
) {
	state, ok, err := c.Tx.Lock(ctx, name, may, wait, aside)
	if errors.Is(err, dblock.ErrTxDone) {
		return driver.State{}, true, nil
	}
	return state, ok, err
}

func (c credulous) Guard(ctx context.Context, h protocol.Held, aside driver.OnSideConn) error {
	if err := c.Tx.Guard(ctx, h, aside); !errors.Is(err, dblock.ErrTxDone) {
		return err
	}
	return nil
}

func (c credulous) Release(ctx context.Context, h protocol.Held, d protocol.Detachment, aside driver.OnSideConn) error {
	if err := c.Tx.Release(ctx, h, d, aside); !errors.Is(err, dblock.ErrTxDone) {
		return err
	}
	return nil
}
