package dblockprom_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dblock-go/dblock"
	dblockprom "github.com/dblock-go/dblock/contrib/prom"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/sqlite"
)

func Example() {
	ctx := context.Background()
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

	metrics := dblockprom.New("orders")
	client, err := dblock.New(sqlite.New(db), dblock.WithObserver(metrics.Observer()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	metrics.Watch(client)
	if err := metrics.Inspect(inspect.New(client), dblockprom.Inspection{}); err != nil { // in one process of many
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry() // or prometheus.MustRegister(metrics)
	registry.MustRegister(metrics)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	err = client.Do(ctx, "invoice/42", func(ctx context.Context, l *dblock.Lock) error {
		if _, err := client.TryLock(context.Background(), "invoice/42"); err != nil { // not under ctx: somebody else
			fmt.Println("the second:", observe.Outcome(err))
		}
		return scrape(server.URL, "dblock_locks_held", "dblock_names_held",
			`dblock_acquire_failures_total{client="orders",outcome="refused"}`)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// the second: refused
	// dblock_acquire_failures_total{client="orders",outcome="refused"} 1
	// dblock_locks_held{client="orders"} 1
	// dblock_names_held{client="orders"} 1
}

// scrape prints what Prometheus would read of some metrics.
func scrape(url string, metrics ...string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		for _, metric := range metrics {
			if strings.HasPrefix(line, metric) {
				fmt.Print(line)
			}
		}
	}
	return nil
}
