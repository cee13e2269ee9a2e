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
	"sync/atomic"
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
	"a request runs once per key, and its answer is replayed":        once,
	"of two requests with a key at once one runs":                    atOnce,
	"failures are rolled back, and run again":                        failures,
	"a commit without an answer is replayed":                         withoutAnswer,
	"a transaction that ended below its handler stores no answer":    ended,
	"what may succeed later is rolled back, and runs again":          notFinal,
	"a request ends with its client while it waits for a connection": abandoned,
	"answers expire":             expires,
	"wrong requests are refused": refused,
}

// TestMiddleware runs them on every engine, and with pgx.
func TestMiddleware(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		t.Parallel()
		db, engine := prepare(t, d)
		libraries := map[string]serve{"sql": over(client(t, engine), httpidem.SQL(db, d.Engine))}
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

// prepare makes the tables.
func prepare(t *testing.T, d dbtest.Database) (*sql.DB, dblock.Engine[*sql.Tx]) {
	db := d.SQL(t)
	schema, err := httpidem.Schema(d.Engine)
	require.NoError(t, err)
	for _, statement := range []string{schema, schema, "CREATE TABLE payments (n int)"} {
		require.NoError(t, require.ErrOf(db.ExecContext(t.Context(), statement)))
	}
	return db, map[migrate.Engine]dblock.Engine[*sql.Tx]{
		migrate.Postgres: postgres.NewSQL(db), migrate.MySQL: mysql.New(db), migrate.SQLite: sqlite.New(db),
	}[d.Engine]
}

func client[TX any](t *testing.T, engine dblock.Engine[TX]) *dblock.Client[TX] {
	c, err := dblock.New(engine)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}

// faulty loses the answer to a commit, and has clients hang up while their requests begin, if asked
// to.
type faulty[TX any] struct {
	httpidem.Database[TX]
	open *atomic.Int32 // transactions
}

// lose and hang are keys of a request's context. The value of hang is the end of the client.
type lose struct{}
type hang struct{}

func (f faulty[TX]) Begin(ctx context.Context) (tx TX, err error) {
	hangUp, _ := ctx.Value(hang{}).(context.CancelFunc)
	if hangUp != nil && ctx.Value(lose{}) == nil { // there is no connection
		hangUp()
		<-ctx.Done()
		return tx, ctx.Err()
	}
	tx, err = f.Database.Begin(ctx)
	if err == nil {
		f.open.Add(1)
	}
	if hangUp != nil { // its answer is late
		hangUp()
		<-ctx.Done()
	}
	return tx, err
}

func (f faulty[TX]) Commit(ctx context.Context, tx TX) error {
	f.open.Add(-1)
	err := f.Database.Commit(ctx, tx)
	if err == nil && ctx.Value(lose{}) != nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (f faulty[TX]) Rollback(ctx context.Context, tx TX) error {
	f.open.Add(-1)
	return f.Database.Rollback(ctx, tx)
}

// over returns the serve for transactions of type TX.
func over[TX any](c *dblock.Client[TX], db httpidem.Database[TX]) serve {
	return func(w world, next handler, options []httpidem.Option) (http.Handler, sweeper) {
		options = append([]httpidem.Option{httpidem.Logger(slog.New(slog.DiscardHandler))}, options...)
		var open atomic.Int32
		m, err := httpidem.New(c, faulty[TX]{db, &open}, options...)
		require.NoError(w, err)
		w.Cleanup(func() { assert.Equal(w, open.Load(), 0, "transactions that were not ended") })
		h := m.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			next(rw, r, func() {
				tx := httpidem.Tx[TX](r.Context())
				assert.NoError(w, assert.ErrOf(db.Exec(r.Context(), tx, "INSERT INTO payments (n) VALUES (1)")))
			})
			if r.Header.Get("End") != "" { // as a deadlock does on MySQL
				assert.NoError(w, assert.ErrOf(db.Exec(r.Context(), httpidem.Tx[TX](r.Context()), "ROLLBACK")))
			}
		}))
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			if r.Header.Get("Hang") != "" {
				ctx = context.WithValue(ctx, hang{}, cancel)
			}
			if r.Header.Get("Lose") != "" || r.Header.Get("Hang") == "late" {
				ctx = context.WithValue(ctx, lose{}, true)
			}
			r = r.WithContext(ctx)
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
