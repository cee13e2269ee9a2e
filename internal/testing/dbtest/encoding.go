package dbtest

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// Encoded returns a fresh database of PostgreSQL with an encoding and dblock's tables.
func Encoded(t testing.TB, encoding string) Database {
	t.Helper()
	db := EncodedEmpty(t, encoding)
	db.Migrate(t)
	return db
}

// EncodedEmpty is Encoded without tables.
func EncodedEmpty(t testing.TB, encoding string) Database {
	t.Helper()
	return server(t, KindPostgres).temporary(t,
		" ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
}

// ClientEncoding returns a database of PostgreSQL as seen by connections with a client_encoding;
// "": the server's default.
func (d Database) ClientEncoding(t testing.TB, encoding string) Database {
	t.Helper()
	u, err := postgresURL(d.DSN)
	require.NoError(t, err)
	if q := u.Query(); encoding != "" {
		q.Set("client_encoding", encoding)
		u.RawQuery = q.Encode()
	}
	d.DSN = u.String()
	return d
}
