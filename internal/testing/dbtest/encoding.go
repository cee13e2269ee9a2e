package dbtest

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// Encoded returns a fresh database of PostgreSQL with an encoding and dblock's tables.
func Encoded(t testing.TB, encoding string) Database {
	t.Helper()
	s := server(t, KindPostgres)
	s.mu.Lock()
	if s.encoded == nil {
		s.encoded = map[string]*template{}
	}
	if s.encoded[encoding] == nil {
		s.encoded[encoding] = &template{how: withEncoding(encoding)}
	}
	like := s.encoded[encoding]
	s.mu.Unlock()
	from := like.get(t, s)
	return s.temporary(t, " TEMPLATE "+from.name+from.like)
}

// EncodedEmpty is Encoded without tables.
func EncodedEmpty(t testing.TB, encoding string) Database {
	t.Helper()
	return server(t, KindPostgres).temporary(t, withEncoding(encoding))
}

func withEncoding(encoding string) string {
	return " ENCODING '" + encoding + "' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
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
