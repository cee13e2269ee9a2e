package httpidem_test

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/contrib/httpidem"
	"github.com/dblock-go/dblock/contrib/httpidem/httpidempgx"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// world is a database of one kind, with one library for its transactions.
type world struct {
	*testing.T
	db *sql.DB
	serve
}

// serve makes the middleware of a process of its own, around a handler.
type serve func(w world, next handler, options []httpidem.Option) (http.Handler, sweeper)

// handler answers a request. pay writes a row in the request's transaction.
type handler func(w http.ResponseWriter, r *http.Request, pay func())

type sweeper interface {
	Sweep(ctx context.Context) error
}

// sentences are the tests, each of which begins with empty tables.
var sentences = map[string]func(t *testing.T, w world){
	"a request runs once per key, and its answer is replayed":     once,
	"of two requests with a key at once one runs":                 atOnce,
	"failures are rolled back, and run again":                     failures,
	"a commit without an answer is replayed":                      withoutAnswer,
	"a transaction that ended below its handler stores no answer": ended,
	"answers expire":             expires,
	"wrong requests are refused": refused,
}

// TestMiddleware runs them on every engine, and with pgx.
func TestMiddleware(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		t.Parallel()
		db := d.SQL(t)
		schema, err := httpidem.Schema(d.Engine)
		require.NoError(t, err)
		for _, statement := range []string{schema, schema, "CREATE TABLE payments (n int)"} {
			require.NoError(t, require.ErrOf(db.ExecContext(t.Context(), statement)))
		}
		engines := map[migrate.Engine]dblock.Engine[*sql.Tx]{
			migrate.Postgres: postgres.NewSQL(db), migrate.MySQL: mysql.New(db), migrate.SQLite: sqlite.New(db),
		}
		libraries := map[string]serve{"sql": over(client(t, engines[d.Engine]), httpidem.SQL(db, d.Engine))}
		if d.Kind == dbtest.KindPostgres {
			pool := d.Pool(t)
			libraries["pgx"] = over(client(t, postgres.New(pool)), httpidempgx.Pool(pool))
		}
		for library, serve := range libraries {
			for sentence, test := range sentences {
				t.Run(library+": "+sentence, func(t *testing.T) {
					for _, table := range []string{"payments", "dblock_answers"} {
						require.NoError(t, require.ErrOf(db.ExecContext(t.Context(), "DELETE FROM "+table)))
					}
					test(t, world{t, db, serve})
				})
			}
		}
	})
}

func client[TX any](t *testing.T, engine dblock.Engine[TX]) *dblock.Client[TX] {
	c, err := dblock.New(engine)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}

// lossy loses the answer to each commit, if asked to.
type lossy[TX any] struct{ httpidem.Database[TX] }

func (l lossy[TX]) Commit(ctx context.Context, tx TX) error {
	err := l.Database.Commit(ctx, tx)
	if err == nil && ctx.Value(lossy[int]{}) != nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// over returns the serve for transactions of type TX.
func over[TX any](c *dblock.Client[TX], db httpidem.Database[TX]) serve {
	return func(w world, next handler, options []httpidem.Option) (http.Handler, sweeper) {
		options = append([]httpidem.Option{httpidem.Logger(slog.New(slog.DiscardHandler))}, options...)
		m, err := httpidem.New(c, lossy[TX]{db}, options...)
		require.NoError(w, err)
		h := m.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			next(rw, r, func() {
				err := db.Exec(r.Context(), httpidem.Tx[TX](r.Context()), "INSERT INTO payments (n) VALUES (1)")
				assert.NoError(w, err)
			})
			if r.Header.Get("End") != "" { // as a deadlock does on MySQL
				assert.NoError(w, db.Exec(r.Context(), httpidem.Tx[TX](r.Context()), "ROLLBACK"))
			}
		}))
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Lose") != "" {
				r = r.WithContext(context.WithValue(r.Context(), lossy[int]{}, true))
			}
			h.ServeHTTP(rw, r)
		}), m
	}
}

// payments fails unless so many were committed.
func (w world) payments(want int) {
	w.Helper()
	var n int
	require.NoError(w, w.db.QueryRowContext(w.Context(), "SELECT count(*) FROM payments").Scan(&n))
	assert.Equal(w, n, want, "payments")
}

// post sends a request with a key and, perhaps, a further header.
func post(t testing.TB, h http.Handler, key, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	if len(header) > 0 {
		r.Header.Set(header[0], header[1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// is fails unless an answer has a status, and begins with a text.
func is(t testing.TB, w *httptest.ResponseRecorder, status int, text string) {
	t.Helper()
	if w.Code != status || !strings.HasPrefix(w.Body.String(), text) {
		t.Errorf("%d %s: want %d %s", w.Code, w.Body, status, text)
	}
}
