package dblockotel_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dblock-go/dblock"
	dblockotel "github.com/dblock-go/dblock/contrib/otel"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/sqlite"
)

// An application sets the providers once, with exporters, by otel.SetMeterProvider and
// otel.SetTracerProvider; then Observer and Watch need no options.
func Example() {
	ctx := context.Background()
	spans := tracetest.NewSpanRecorder()
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	providers := []dblockotel.Option{dblockotel.WithTracerProvider(tracers), dblockotel.WithMeterProvider(meters)}

	folder, err := os.MkdirTemp("", "dblock")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "locks.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, migrate.SQLite); err != nil {
		log.Fatal(err)
	}

	client, err := dblock.New(sqlite.New(db),
		dblock.WithObserver(dblockotel.Observer(append(providers, dblockotel.WithNamesInSpans())...)))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	registration, err := dblockotel.Watch(client, providers...)
	if err != nil {
		log.Fatal(err)
	}
	defer registration.Unregister()

	err = client.Do(ctx, "invoice/42", func(ctx context.Context, l *dblock.Lock) error {
		if _, err := client.TryLock(context.Background(), "invoice/42"); err != nil { // not under ctx: somebody else
			fmt.Println("the second:", observe.Outcome(err))
		}
		return show(ctx, reader, "dblock.held.count")
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Close(ctx); err != nil { // which waits until the observer was told
		log.Fatal(err)
	}
	for _, span := range spans.Ended() {
		fmt.Println("span", span.Name(), span.Status().Code)
	}
	if err := show(ctx, reader, "dblock.acquire.duration", "dblock.hold.duration", "dblock.held.count"); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// the second: refused
	// dblock.held.count 1
	// span dblock.lock Unset
	// span dblock.trylock Unset
	// dblock.acquire.duration "" 1
	// dblock.acquire.duration "refused" 1
	// dblock.hold.duration "" 1
	// dblock.held.count 0
}

// show prints what an exporter would send of some metrics.
func show(ctx context.Context, reader metric.Reader, names ...string) error {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		return err
	}
	for _, name := range names {
		for _, m := range all.ScopeMetrics[0].Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, point := range data.DataPoints {
					failure, _ := point.Attributes.Value("error.type")
					fmt.Printf("%s %q %d\n", name, failure.AsString(), point.Count)
				}
			case metricdata.Sum[int64]:
				fmt.Printf("%s %d\n", name, data.DataPoints[0].Value)
			}
		}
	}
	return nil
}
