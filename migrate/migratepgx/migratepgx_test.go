package migratepgx_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/migrate/migratepgx"
	"github.com/dblock-go/dblock/postgres"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func TestTheTablesComeOverAPoolOfPgxWhichStaysOpen(t *testing.T) {
	ctx := t.Context()
	pool := dbtest.Empty(t, dbtest.KindPostgres).Pool(t)
	for range 2 {
		if err := migratepgx.Up(ctx, pool, migrate.Locks, migrate.Fences); err != nil {
			t.Fatal(err)
		}
		if err := migratepgx.UpIn(ctx, pool, "locks"); err != nil {
			t.Fatal(err)
		}
	}
	for _, engine := range []dblock.Engine[pgx.Tx]{postgres.New(pool), postgres.New(pool, postgres.Schema("locks"))} {
		client, err := dblock.New(engine)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		if _, err := client.TryLock(ctx, "n"); err != nil {
			t.Error(err)
		}
	}
	if err := migratepgx.Up(ctx, nil); err == nil {
		t.Error("a nil pool")
	}
}
