package fence

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
)

// A resource is the same row whatever character sets the application's connection has.
func TestNoCharacterSetTouchesAResource(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			w := txtest.New(t, db, migrate.Fences)
			txtest.EachCharset(t, func(t *testing.T, params string) {
				odd := w
				odd.DSN, _, _ = strings.Cut(db.DSN, "?")
				odd.DSN += "?" + params
				odd.DB = odd.SQL(t)
				for _, resource := range []string{"plain " + params, "über " + params, "日😀 " + params} {
					seen(t, odd, resource, 50)
					seen(t, w, resource, 100)
					tx := odd.Begin(t)
					isStale(t, check(t, tx, resource, 50), resource, 50, 100)
					passes(t, tx, resource, 100)
					tx.Rollback()
				}
			})
		})
	}
}

// A resource is the same row whatever client_encoding the application's connection has.
func TestNoEncodingTouchesAResource(t *testing.T) {
	t.Parallel()
	migrated := func(t testing.TB, encoding string) dbtest.Database {
		db := dbtest.EncodedEmpty(t, encoding)
		require.NoError(t, migrate.Up(t.Context(), db.SQL(t), db.Engine, migrate.Fences))
		return db
	}
	txtest.EachEncoding(t, migrated, func(t *testing.T, db, changed dbtest.Database, names []string) {
		for _, pgx := range []bool{false, true} {
			usual, odd := txtest.In(t, db, false), txtest.In(t, changed, pgx)
			for _, name := range names {
				name += " " + t.Name()
				if pgx {
					name += " pgx"
				}
				seen(t, odd, name, 50)
				seen(t, usual, name, 100)
				tx := odd.Begin(t)
				isStale(t, check(t, tx, name, 50), name, 50, 100)
				passes(t, tx, name, 100)
				tx.Rollback()
			}
		}
	})
}
