package mysql_test

import (
	"context"
	"database/sql"
	"testing"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// All connections of the library are the pool's that it was given. With a pool of its own they can
// say so, and it still works inside the transactions of the application's pool.
func TestAPoolOfTheLibrarysOwn(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		config, err := sqldriver.ParseDSN(s.DSN)
		require.NoError(t, err)
		program := "dblock/" + config.DBName // as no other test on this server
		own := s.open(t, func(c *sqldriver.Config) { c.ConnectionAttributes = "program_name:" + program })
		theirs := s.open(t, nil)
		c := s.client(t, own)
		ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
		defer cancel()
		l, err := c.Lock(ctx, "held")
		require.NoError(t, err)

		for range 4 { // a statement that is prepared on one pool cannot be used on another
			tx, err := theirs.BeginTx(ctx, nil)
			require.NoError(t, err)
			for _, name := range []string{"a", "b"} {
				require.NoError(t, c.LockTx(ctx, tx, name))
			}
			require.NoError(t, c.Guard(ctx, tx, l))
			require.NoError(t, tx.Commit())
		}
		tx, err := theirs.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		require.NoError(t, c.UnlockTx(ctx, tx, l))
		require.NoError(t, tx.Commit())

		if s.Kind != dbtest.KindMySQL { // MariaDB's performance_schema is off by default
			return
		}
		var n int
		require.NoError(t, s.pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM performance_schema.session_connect_attrs
			WHERE attr_name = 'program_name' AND attr_value = ?`, program).Scan(&n))
		if open := own.Stats().OpenConnections; n == 0 || n != open {
			t.Errorf("%d connections are known as %s, of %d", n, program, open)
		}
	})
}
