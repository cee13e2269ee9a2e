package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	lockTimeout     = 2 * time.Second  // how long a request waits for its lock
	shutdownTimeout = 20 * time.Second // how long requests may take to end
	closeTimeout    = 5 * time.Second  // how long the client may take to release its locks
)

// work handles a request under the lock of its invoice.
type work func(ctx context.Context, invoice string, lock *dblock.Lock) error

// handler works on one request for an invoice at a time, over all servers.
func handler(client *dblock.Client[*sql.Tx], work work) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /invoices/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := underLock(r.Context(), client, r.PathValue("id"), work); err != nil {
			code := status(r.Context(), err)
			if code == http.StatusLocked || code == http.StatusServiceUnavailable {
				w.Header().Set("Retry-After", "1")
			}
			// The error itself is for the log: it names hosts.
			http.Error(w, http.StatusText(code), code)
		}
	})
	return mux
}

// underLock waits a short time for the lock, and works while the request and the lock last.
func underLock(request context.Context, client *dblock.Client[*sql.Tx], invoice string, work work) error {
	return client.Do(request, dblock.Name("invoice", invoice), func(ctx context.Context, lock *dblock.Lock) error {
		return work(ctx, invoice, lock)
	}, dblock.WaitAtMost(lockTimeout))
}

// clientClosedRequest is the status that nginx logs for a client that did not wait for the answer.
const clientClosedRequest = 499

// status returns the HTTP status for an error of dblock.
func status(request context.Context, err error) int {
	switch {
	case request.Err() != nil: // whatever the error says, it is no failure of the database
		return clientClosedRequest
	case errors.Is(err, dblock.ErrNotAcquired): // a holder was seen
		return http.StatusLocked
	case errors.Is(err, dblock.ErrDeadlock), errors.Is(err, dblock.ErrLost): // all of it may be tried again
		return http.StatusConflict
	case errors.Is(err, dblock.ErrUnavailable), errors.Is(err, dblock.ErrClosed): // nothing is known of the lock
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// serve answers until ctx ends. Then it takes no new requests, lets those in flight continue, and
// closes the client once no request needs it any more. The pool is closed after that.
func serve(ctx context.Context, listener net.Listener, client *dblock.Client[*sql.Tx], h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		err = server.Shutdown(within)
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout) // Shutdown may have used up its own
	defer cancel()
	// Requests that are still running lose their locks here: their contexts end with ErrClosed.
	return errors.Join(err, client.Close(within), server.Close())
}
