package optimistic

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/txtest"
	"github.com/dblock-go/dblock/migrate"
)

// A name is the same row whatever character sets the application's connection has.
func TestNoCharacterSetTouchesAName(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			w := txtest.New(t, db, migrate.Versions)
			txtest.EachCharset(t, func(t *testing.T, params string) {
				odd := w
				odd.DSN, _, _ = strings.Cut(db.DSN, "?")
				odd.DSN += "?" + params
				odd.DB = odd.SQL(t)
				for _, name := range []string{"plain " + params, "über " + params, "日😀 " + params} {
					commitBump(t, odd, name, 0)
					commitBump(t, w, name, 1)
					tx := odd.Begin(t)
					reads(t, tx, name, 2)
					isConflict(t, bump(t, tx, name, 1), name, 1)
					bumps(t, tx, name, 2)
					tx.Rollback()
				}
			})
		})
	}
}

// A name is the same row whatever client_encoding the application's connection has.
func TestNoEncodingTouchesAName(t *testing.T) {
	t.Parallel()
	migrated := func(t testing.TB, encoding string) dbtest.Database {
		db := dbtest.EncodedEmpty(t, encoding)
		require.NoError(t, migrate.Up(t.Context(), db.SQL(t), db.Engine, migrate.Versions))
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
				commitBump(t, odd, name, 0)
				commitBump(t, usual, name, 1)
				tx := odd.Begin(t)
				reads(t, tx, name, 2)
				isConflict(t, bump(t, tx, name, 1), name, 1)
				bumps(t, tx, name, 2)
				tx.Rollback()
			}
		}
	})
}
