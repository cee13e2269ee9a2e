package dblockotel_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	dblockotel "github.com/dblock-go/dblock/contrib/otel"
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

// telemetry is OpenTelemetry's SDK, and what came of it.
type telemetry struct {
	t       *testing.T
	reader  *metric.ManualReader
	spans   *tracetest.SpanRecorder
	meters  *metric.MeterProvider
	tracers *trace.TracerProvider
}

func newTelemetry(t *testing.T) *telemetry {
	sdk := &telemetry{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	sdk.meters = metric.NewMeterProvider(metric.WithReader(sdk.reader))
	sdk.tracers = trace.NewTracerProvider(trace.WithSpanProcessor(sdk.spans))
	return sdk
}

// with are the options that have telemetry go here.
func (sdk *telemetry) with(options ...dblockotel.Option) []dblockotel.Option {
	return append(options, dblockotel.WithMeterProvider(sdk.meters), dblockotel.WithTracerProvider(sdk.tracers))
}

// collect are the metrics there are, by name.
func (sdk *telemetry) collect() map[string]metricdata.Metrics {
	sdk.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(sdk.t, sdk.reader.Collect(sdk.t.Context(), &all))
	metrics := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		assert.Equal(sdk.t, scope.Scope.Name, "github.com/dblock-go/dblock/contrib/otel", "scope")
		for _, m := range scope.Metrics {
			metrics[m.Name] = m
		}
	}
	return metrics
}
