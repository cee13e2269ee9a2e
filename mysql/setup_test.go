package mysql_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

func TestValidate(t *testing.T) {
	is(t, inside.Of(mysql.New(nil)).Validate(), driver.ErrConfig)
	connector, err := sqldriver.NewConnector(sqldriver.NewConfig())
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	require.NoError(t, inside.Of(mysql.New(db)).Validate())
	for n, want := range map[int]error{1: driver.ErrConfig, 2: driver.ErrConfig, 3: nil} {
		db.SetMaxOpenConns(n)
		is(t, inside.Of(mysql.New(db)).Validate(), want)
	}
}

func TestAPoolThatIsUsedUpIsNamedAsTheCause(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, func(*sqldriver.Config) {})
		pool.SetMaxOpenConns(3)
		e := inside.Of(mysql.New(pool)).Backend
		for range 3 {
			conn, err := pool.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := e.OnSideConn(ctx, func(context.Context, driver.Upkeep) error { t.Error("ran"); return nil })
		is(t, err, driver.ErrUnavailable)
		is(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "SetMaxOpenConns") {
			t.Error(err)
		}
	})
}

func TestAConnectionIsReservedBeforeItIsNeeded(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, func(*sqldriver.Config) {})
		pool.SetMaxOpenConns(3)
		e := inside.Of(mysql.New(pool)).Backend
		leave := e.Attend("", ttl)
		defer leave()
		u, err := e.Upkeep(t.Context(), "s")
		require.NoError(t, err)
		defer u.Close()
		dbtest.Eventually(t, "two connections to be reserved", func() bool { return pool.Stats().InUse == 2 })
		leave()
		if n := pool.Stats().InUse; n != 1 {
			t.Errorf("%d connections in use after the client left, want that of the heartbeats", n)
		}
	})
}
