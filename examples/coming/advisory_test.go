package coming

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// advisory.md: an application that locks the name's key by itself is excluded.
func TestTheServersOwnLocksExcludeThoseTakenByHand(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		switch db.Kind {
		case dbtest.KindPostgres:
			pool, err := pgxpool.New(t.Context(), db.DSN)
			must(t, err)
			defer pool.Close()
			client, err := postgres.Advisory(pool)
			must(t, err)
			defer client.Close(t.Context())
			excludes(t, client, func(ctx context.Context) (taken bool, err error) {
				err = pool.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", postgres.AdvisoryKey("vacuum")).Scan(&taken)
				return taken, err
			})
			must(t, Withdraw(t.Context(), pool, client, "alice", func(ctx context.Context, _ pgx.Tx) error {
				_, err := client.TryLock(ctx, dblock.Name("account", "alice"))
				assert.ErrorIs(t, err, dblock.ErrNotAcquired)
				return nil
			}))
		case dbtest.KindMySQL, dbtest.KindMariaDB:
			pool, err := sql.Open("mysql", db.DSN)
			must(t, err)
			defer pool.Close()
			client, err := mysql.Named(pool)
			must(t, err)
			defer client.Close(t.Context())
			excludes(t, client, func(ctx context.Context) (taken bool, err error) {
				err = pool.QueryRowContext(ctx, "SELECT GET_LOCK(?, 0)", mysql.NamedKey("vacuum")).Scan(&taken)
				return taken, err
			})
		}
	})
}

// excludes checks that a lock that is taken by hand fails while the client has it.
func excludes(t *testing.T, locker dblock.Locker, byHand func(ctx context.Context) (taken bool, err error)) {
	t.Helper()
	ran := false
	must(t, Vacuum(t.Context(), locker, func(ctx context.Context) error {
		ran = true
		taken, err := byHand(ctx)
		assert.Equal(t, taken, false, "taken by hand")
		return err
	}))
	assert.Equal(t, ran, true)
}
