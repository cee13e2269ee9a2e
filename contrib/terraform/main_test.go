package tfstate

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// sentences are the tests, each with a state of its own.
var sentences = map[string]func(t *testing.T, w world){
	"a run locks, writes and unlocks at any process": anywhere,
	"a late write never overwrites a newer state":    late,
	"a statement that did nothing is not believed":   unproven,
	"a LOCK that may still fail is not answered":     unfinished,
	"an application keeps Terraform out":             application,
	"a lock expires":                                 expires,
	"wrong requests are refused":                     refused,
	"the addresses of GitLab lock and unlock":        addresses,
	"what is meant to lock or unlock writes nothing": misdirected,
	"a state may be named lock":                      namedLock,
	"a browser shows no HTML and writes nothing":     browsers,
	"tofu and terraform apply, unlock and destroy":   programs,
}

// TestHandler runs them on every engine.
func TestHandler(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d dbtest.Database) {
		t.Parallel()
		db := d.SQL(t)
		schema, err := Schema(d.Engine)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, require.ErrOf(db.ExecContext(t.Context(), schema)))
		}
		for sentence, test := range sentences {
			path := "/" + strings.ReplaceAll(sentence, " ", "-") + "/prod"
			t.Run(sentence, func(t *testing.T) { test(t, world{t, d, db, path}) })
		}
	})
}

type world struct {
	*testing.T
	dbtest.Database
	db   *sql.DB
	path string
}

func (w world) client() *dblock.Client[*sql.Tx] {
	engines := map[migrate.Engine]dblock.Engine[*sql.Tx]{
		migrate.Postgres: postgres.NewSQL(w.db), migrate.MySQL: mysql.New(w.db), migrate.SQLite: sqlite.New(w.db),
	}
	c, err := dblock.New(engines[w.Engine], dblock.WithHost("ops-1"), dblock.WithApp("shop"))
	require.NoError(w, err)
	w.Cleanup(func() { assert.NoError(w, c.Close(context.Background())) })
	return c
}

// server is a process of its own, which serves states.
func (w world) server(options ...Option) server {
	client := w.client()
	options = append([]Option{Logger(slog.New(slog.DiscardHandler))}, options...)
	h, err := New(client, w.db, w.Engine, options...)
	require.NoError(w, err)
	s := httptest.NewServer(h)
	w.Cleanup(s.Close)
	return server{w.T, client, h, s.URL}
}

type server struct {
	*testing.T
	client *dblock.Client[*sql.Tx]
	*Handler
	url string
}

// says sends a request, and fails unless the answer has the status. It returns the body.
func (s server) says(status int, method, path, body string) string {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s, err)
	if body != "" {
		request.Header.Set("Content-MD5", sum([]byte(body)))
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(s, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s, err)
	if response.StatusCode != status {
		s.Errorf("%s %s: %s %s: want %d", method, path, response.Status, text, status)
	}
	if method == http.MethodGet && status == http.StatusOK {
		assert.Equal(s, response.Header.Get("Content-MD5"), sum(text), "Content-MD5")
	}
	return string(text)
}

// lockInfo is what Terraform sends.
func lockInfo(id string) string {
	return `{"ID":"` + id + `","Operation":"OperationTypeApply","Info":"","Who":"ada@laptop","Version":"1.11.4",` +
		`"Created":"2026-01-02T03:04:05.678901Z","Path":""}`
}

// names fails unless a body is the LockInfo of a holder.
func (s server) names(body, id, who string) {
	s.Helper()
	var info map[string]string
	require.NoError(s, json.Unmarshal([]byte(body), &info), body)
	assert.Equal(s, info["ID"], id, "ID")
	assert.Equal(s, info["Who"], who, "Who")
}
