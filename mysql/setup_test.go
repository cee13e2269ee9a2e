package mysql_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

func TestValidate(t *testing.T) {
	is(t, mysql.New(nil).Validate(), driver.ErrConfig)
	connector, err := sqldriver.NewConnector(sqldriver.NewConfig())
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer db.Close()
	require.NoError(t, mysql.New(db).Validate())
	for n, want := range map[int]error{1: driver.ErrConfig, 2: driver.ErrConfig, 3: nil} {
		db.SetMaxOpenConns(n)
		is(t, mysql.New(db).Validate(), want)
	}
}

func TestSchema(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		e := s.engine(t)
		s.migrate(t) // again, as after one that was cut off
		if schema, err := e.Schema(t.Context()); err != nil || schema.Version != driver.SchemaVersion ||
			schema.Check() != nil {
			t.Fatal(schema, err)
		}
		require.Equal(t, s.number(t, "SELECT COUNT(*) FROM dblock_schema"), 1, "rows in dblock_schema")
		s.exec(t, "DROP TABLE dblock_schema, dblock_locks")
		if schema, err := e.Schema(t.Context()); err != nil || schema.Version != 0 {
			t.Fatal(schema, err)
		}
		_, err := e.Run(t.Context(), protocol.Take{Request: protocol.Request{Name: "n", Session: "s", Attempt: "a"}})
		is(t, err, driver.ErrSchema)
	})
}

func TestAPoolThatIsUsedUpIsNamedAsTheCause(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		pool := s.open(t, func(*sqldriver.Config) {})
		pool.SetMaxOpenConns(3)
		e := mysql.New(pool).Backend
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
		e := mysql.New(pool).Backend
		leave := e.Attend("", ttl)
		defer leave()
		u, err := e.Upkeep(t.Context(), "s")
		require.NoError(t, err)
		defer u.Close()
		eventually(t, "two connections are reserved", func() bool { return pool.Stats().InUse == 2 })
		leave()
		if n := pool.Stats().InUse; n != 1 {
			t.Errorf("%d connections in use after the client left, want that of the heartbeats", n)
		}
	})
}
