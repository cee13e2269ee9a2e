// Command kubernetes is the application of leader.yaml: replicas of which one leads. On port 8080
// /live answers as long as the process does, /ready while it can lock, and /leader in the leader
// alone. DBLOCK_DSN names the database, DBLOCK_FOLDER the folder that a restarted container finds
// again.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/examples/internal/database"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "indexer:", err)
		os.Exit(1)
	}
}

// serve runs the application until ctx ends. An error at its start ends the container, which is
// started again.
func serve(ctx context.Context) error {
	db, err := database.Open(ctx, os.Getenv("DBLOCK_DSN"), "kubernetes")
	if err != nil {
		return err
	}
	defer db.Close()
	var options []dblock.Option
	if folder := os.Getenv("DBLOCK_FOLDER"); folder != "" {
		options = append(options, dblock.WithHostFolder(folder))
	}
	client, err := dblock.New(db.EngineOverSQL(), options...)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		return errors.Join(err, client.Close(ctx))
	}
	return run(ctx, client, listener)
}

// run campaigns until ctx ends, and closes the client: the next replica leads at once.
func run[TX any](ctx context.Context, client *dblock.Client[TX], listener net.Listener) (err error) {
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	var leads atomic.Bool
	server := &http.Server{Handler: answers(client.Ping, &leads)}
	go server.Serve(listener)
	defer server.Close()
	return election.New(client).Campaign(ctx, "indexer", func(ctx context.Context, t *election.Term) error {
		leads.Store(true)
		defer leads.Store(false)
		<-ctx.Done() // in place of the work, which sends t.Token() along or writes under client.Guard
		return ctx.Err()
	})
}

// pingTimeout is less than the timeout of the probe.
const pingTimeout = 2 * time.Second

// answers are those to probes. /live does not ask the database: while the database is away the
// leader loses its lease and stops by itself, and a restart of all replicas would mend nothing.
func answers(ping func(context.Context) error, leads *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/live", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pingTimeout)
		defer cancel()
		if err := ping(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/leader", func(w http.ResponseWriter, _ *http.Request) {
		if !leads.Load() {
			http.Error(w, "another replica leads", http.StatusServiceUnavailable)
		}
	})
	return mux
}
