package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// user makes a user with some rights, and returns a pool of its own.
func (s server) user(t *testing.T, role, rights string) *sql.DB {
	t.Helper()
	config, err := sqldriver.ParseDSN(s.DSN)
	require.NoError(t, err)
	name := config.DBName[len(config.DBName)-20:] + role
	s.exec(t, "CREATE USER "+name+"@'%' IDENTIFIED BY 'x'")
	t.Cleanup(func() { s.exec(t, "DROP USER "+name+"@'%'") })
	database := ""
	if rights != "" {
		database = config.DBName
		s.exec(t, "GRANT "+rights+" ON "+database+".* TO "+name+"@'%'")
	}
	return s.open(t, func(c *sqldriver.Config) { c.User, c.Passwd, c.DBName = name, "x", database })
}

var _ dblock.Locker = (*mysql.NamedClient)(nil)

func TestNamedRefusesBadInput(t *testing.T) {
	if c, err := mysql.Named(nil); c != nil || !errors.Is(err, dblock.ErrConfig) {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := mysql.Named(nil, mysql.NamedTTL(0)); c != nil || !errors.Is(err, dblock.ErrInvalidOption) {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := mysql.Named(nil, mysql.NamedLogger(nil)); c != nil || !errors.Is(err, dblock.ErrInvalidOption) {
		t.Errorf("%v, %v", c, err)
	}
}

// A user without any right but to connect.
func TestNamedLocksNeedNoRights(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.user(t, "none", "")
		var clients [2]*mysql.NamedClient
		for i := range clients {
			c, err := mysql.Named(pool)
			require.NoError(t, err)
			defer c.Close(context.Background())
			clients[i] = c
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		name := "rights/" + id()
		held, err := clients[0].Lock(ctx, name)
		require.NoError(t, err)
		_, err = clients[1].TryLock(ctx, name)
		is(t, err, dblock.ErrNotAcquired)
		got := make(chan error, 1)
		go func() {
			next, err := clients[1].Lock(ctx, name)
			if err == nil {
				err = next.Unlock(ctx)
			}
			got <- err
		}()
		require.NoError(t, held.Unlock(ctx))
		require.NoError(t, <-got)
		stopped, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		defer stop()
		held, err = clients[0].Lock(ctx, name)
		require.NoError(t, err)
		_, err = clients[1].Lock(stopped, name) // the wait is ended with KILL
		is(t, err, context.DeadlineExceeded)
		require.NoError(t, held.Unlock(ctx))
	})
}

// Without CONNECTION_ADMIN a user cannot end the sleep of another's listener, which then looks by
// itself, within seconds.
func TestClientsOfSeveralUsersWaitForEachOther(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		const rights = "SELECT, INSERT, UPDATE, DELETE"
		a, b := s.client(t, s.user(t, "a", rights)), s.client(t, s.user(t, "b", rights))
		handOver(t, a, b, 2)
	})
}
