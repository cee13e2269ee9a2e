package txtest

import (
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// charsets are parameters of MySQL DSNs with which the server converts what a connection sends.
var charsets = []string{
	"character_set_connection=latin1",
	"character_set_connection=swe7",
	"character_set_connection=ucs2",
	"character_set_connection=utf16",
	"character_set_connection=utf32",
	"charset=utf8mb4&character_set_client=latin1",
	"charset=utf8mb4&character_set_client=swe7",
	"charset=utf8mb4&character_set_connection=utf8mb3",
	"charset=latin1&character_set_connection=utf8mb4",
	"charset=utf8",
	"charset=binary",
	"charset=gbk",
}

// EachCharset runs f for each, with and without parameters that the driver writes into the text.
func EachCharset(t *testing.T, f func(t *testing.T, params string)) {
	t.Helper()
	for _, params := range charsets {
		for _, interpolate := range []string{"", "&interpolateParams=true"} {
			if interpolate != "" && params == "charset=gbk" {
				continue // the driver refuses that
			}
			t.Run(params+interpolate, func(t *testing.T) { f(t, params+interpolate) })
		}
	}
}

// EachEncoding runs f for databases of PostgreSQL of several encodings, made by fresh, once for
// each client_encoding that odd's connections can have there. Those of usual have UTF8. Names are
// such as the encoding has.
func EachEncoding(
	t *testing.T, fresh func(t testing.TB, encoding string) dbtest.Database,
	f func(t *testing.T, usual, odd dbtest.Database, names []string),
) {
	t.Helper()
	for _, encoding := range []string{"UTF8", "LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			db := fresh(t, encoding)
			names := []string{"plain", "über", "日😀"}
			others := []string{"", "UTF8", "LATIN1", "SQL_ASCII", "WIN1252", "SJIS"}
			if encoding == "LATIN1" { // the server refuses connections for which it knows no conversion
				names, others = names[:2], others[:4]
			}
			for _, other := range others {
				t.Run("client_encoding="+other, func(t *testing.T) {
					f(t, db.ClientEncoding(t, "UTF8"), db.ClientEncoding(t, other), names)
				})
			}
		})
	}
}

// EachConversion runs f for names in databases with the tables of a set. The connections of odd
// have another character set than those of usual.
func EachConversion(t *testing.T, set migrate.Set, f func(t *testing.T, usual, odd World, name string)) {
	t.Helper()
	for _, kind := range []string{dbtest.KindMySQL, dbtest.KindMariaDB} {
		t.Run(kind, func(t *testing.T) {
			db := dbtest.Empty(t, kind)
			usual := New(t, db, set)
			EachCharset(t, func(t *testing.T, params string) {
				odd := usual
				odd.DSN, _, _ = strings.Cut(db.DSN, "?")
				odd.DSN += "?" + params
				odd.DB = odd.SQL(t)
				for _, name := range []string{"plain ", "über ", "日😀 "} {
					f(t, usual, odd, name+params)
				}
			})
		})
	}
	migrated := func(t testing.TB, encoding string) dbtest.Database {
		db := dbtest.EncodedEmpty(t, encoding)
		require.NoError(t, migrate.Up(t.Context(), db.SQL(t), db.Engine, set))
		return db
	}
	t.Run(dbtest.KindPostgres, func(t *testing.T) {
		EachEncoding(t, migrated, func(t *testing.T, db, changed dbtest.Database, names []string) {
			for library, pgx := range map[string]bool{" sql": false, " pgx": true} {
				usual, odd := In(t, db, false), In(t, changed, pgx)
				for _, name := range names {
					f(t, usual, odd, name+t.Name()+library)
				}
			}
		})
	})
}
