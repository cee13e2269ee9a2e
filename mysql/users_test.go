package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

const toTables = "SELECT, INSERT, UPDATE, DELETE"

// user makes a user with some rights to the database, or none, and returns a pool of its own.
func (s server) user(t *testing.T, role, rights, limits string) *sql.DB {
	t.Helper()
	config, err := sqldriver.ParseDSN(s.DSN)
	require.NoError(t, err)
	name, database := config.DBName[len(config.DBName)-20:]+role, ""
	s.exec(t, "CREATE USER "+name+"@'%' IDENTIFIED BY 'x' "+limits)
	t.Cleanup(func() { s.exec(t, "DROP USER "+name+"@'%'") })
	if rights != "" {
		database = config.DBName
		s.exec(t, "GRANT "+rights+" ON "+database+".* TO "+name+"@'%'")
	}
	return s.open(t, func(c *sqldriver.Config) { c.User, c.Passwd, c.DBName = name, "x", database })
}

var _ dblock.Locker = (*mysql.NamedClient)(nil)

func TestNamedRefusesBadInput(t *testing.T) {
	is(t, require.ErrOf(mysql.Named(nil)), dblock.ErrConfig)
	is(t, require.ErrOf(mysql.Named(nil, mysql.NamedTTL(0))), dblock.ErrInvalidOption)
	is(t, require.ErrOf(mysql.Named(nil, mysql.NamedLogger(nil))), dblock.ErrInvalidOption)
}

// A user without any right but to connect.
func TestNamedLocksNeedNoRights(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.user(t, "none", "", "")
		one, err := mysql.Named(pool)
		require.NoError(t, err)
		defer one.Close(context.Background())
		other, err := mysql.Named(pool)
		require.NoError(t, err)
		defer other.Close(context.Background())
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		name := "rights/" + id()
		held, err := one.Lock(ctx, name)
		require.NoError(t, err)
		is(t, require.ErrOf(other.TryLock(ctx, name)), dblock.ErrNotAcquired)
		stopped, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		defer stop()
		is(t, require.ErrOf(other.Lock(stopped, name)), context.DeadlineExceeded) // the wait is ended with KILL
		got := make(chan error, 1)
		go func() { got <- other.Do(ctx, name, func(context.Context, dblock.Handle) error { return nil }) }()
		require.NoError(t, held.Unlock(ctx))
		require.NoError(t, <-got)
	})
}

// Without CONNECTION_ADMIN a user cannot end the sleep of another's listener, which then looks by
// itself, within seconds.
func TestClientsOfSeveralUsersWaitForEachOther(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		handOver(t, s.client(t, s.user(t, "a", toTables, "")), s.client(t, s.user(t, "b", toTables, "")), 2)
	})
}
