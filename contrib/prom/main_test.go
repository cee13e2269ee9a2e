package dblockprom_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is an SQLite file with dblock's tables.
func database(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "locks.db")+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	require.NoError(t, migrate.Up(t.Context(), db, migrate.SQLite))
	return db
}

func open(t *testing.T, db *sql.DB, options ...dblock.Option) *dblock.Client[*sql.Tx] {
	t.Helper()
	client, err := dblock.New(sqlite.New(db), append(options, dblock.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close(context.WithoutCancel(t.Context()))) })
	return client
}

func registry(t *testing.T, collectors ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, r.Register(c))
	}
	return r
}

// shows fails unless a scrape shows the metrics with these names as they are in text.
func shows(t *testing.T, r prometheus.Gatherer, text string, names ...string) {
	t.Helper()
	assert.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(text), names...))
}

// value is the value of a metric without labels but client, or of all of its series together; a
// histogram's is how often it was observed. -1: there is none.
func value(t *testing.T, r prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	return -1
}
