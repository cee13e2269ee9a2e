package tfstate

import (
	"cmp"
	"context"
	"crypto/md5"
	"database/sql"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/migrations"
)

const (
	// patience bounds the work for one request. The work goes on after its client has hung up:
	// Terraform sends the request again.
	patience = time.Minute

	defaultExpiry = 24 * time.Hour
	defaultState  = 16 << 20
)

// Handler serves states and their locks. It is safe for concurrent use.
type Handler struct {
	client    *dblock.Client[*sql.Tx]
	inspector *inspect.Inspector
	states    states
	expiry    time.Duration
	most      int64
	log       *slog.Logger
	own       http.CrossOriginProtection
}

// Option is an option of New.
type Option func(*Handler)

// Expiry sets the time after which the lock of a run that has not unlocked is free again: longer
// than any run takes, since Terraform cannot renew it. At least a second. Default: 24 hours.
func Expiry(d time.Duration) Option { return func(h *Handler) { h.expiry = d } }

// MaxState limits the bytes of a state. The server has a limit of its own (max_allowed_packet of
// MySQL and MariaDB). Default: 16 MiB.
func MaxState(bytes int64) Option { return func(h *Handler) { h.most = bytes } }

// Logger logs the errors that are answered with 500 or 503. Default: slog.Default.
func Logger(log *slog.Logger) Option { return func(h *Handler) { h.log = log } }

// New returns a handler with the client's locks, for states in the same database. New does no I/O,
// and the handler closes neither of both.
//
// It returns dblock.ErrInvalidOption for a nil client or db, another engine, and options out of
// range.
func New(client *dblock.Client[*sql.Tx], db *sql.DB, engine migrations.Engine, options ...Option) (*Handler, error) {
	if _, err := Schema(engine); err != nil {
		return nil, err
	}
	if client == nil || db == nil {
		return nil, invalid("the client or the database is nil")
	}
	h := &Handler{
		client: client, inspector: inspect.New(client), states: states{db, statementsOf[engine]}, expiry: defaultExpiry,
		most: defaultState, log: slog.Default(),
	}
	for _, option := range options {
		option(h)
	}
	switch {
	case h.expiry < time.Second:
		return nil, invalid("Expiry is %v: want at least a second", h.expiry)
	case h.most < 1:
		return nil, invalid("MaxState is %d: want at least 1", h.most)
	case h.log == nil:
		return nil, invalid("the logger is nil")
	}
	return h, nil
}

// Name returns the name of a state's lock, for package inspect and for applications that keep
// Terraform out. path is the path of the state's address, as the handler sees it.
func Name(path string) string {
	return dblock.Name(append([]string{"terraform"}, strings.Split(strings.Trim(path, "/"), "/")...)...)
}

// ServeHTTP answers one request of Terraform or OpenTofu. It refuses requests to write that a
// browser sends from a page of another origin.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store") // a state contains secrets
	// A context without values: under the context of a lock, every run would be the same owner.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	state, err := h.serve(ctx, w, r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if r.Method != http.MethodGet {
		return
	}
	if len(state) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(state)))
	w.Header().Set("Content-MD5", sum(state))
	_, _ = w.Write(state)
}

// serve does the work of a request. It returns the state for GET.
func (h *Handler) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) (state []byte, err error) {
	if err := h.own.Check(r); err != nil {
		return nil, refusal{http.StatusForbidden, err.Error()}
	}
	at, err := addressOf(r.URL)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.most))
	if err != nil {
		return nil, err
	}
	if want := r.Header.Get("Content-MD5"); want != "" && want != sum(body) {
		return nil, bad("the body is not that of its Content-MD5")
	}
	method, path := meaningOf(r.Method, at.state, body)
	name := Name(path)
	switch method {
	case http.MethodGet:
		state, _, err := h.states.get(ctx, name)
		return state, err
	case http.MethodPost, http.MethodPut:
		if err := checkState(body); err != nil {
			return nil, err
		}
		return nil, h.write(ctx, name, at.id, body)
	case http.MethodDelete:
		if at.id == "" || len(body) > 0 {
			return nil, bad("DELETE removes a state, under the lock that ?ID= states, and has no body: to unlock, "+
				"send UNLOCK, or DELETE to the address with %s behind it", lockSuffix)
		}
		return nil, h.write(ctx, name, at.id, nil)
	case "LOCK", "UNLOCK":
		info, err := lockInfoOf(body)
		switch {
		case err != nil:
			return nil, err
		case method == "LOCK":
			return nil, h.lock(ctx, name, info)
		}
		return nil, h.unlock(ctx, name, cmp.Or(info["ID"], at.id))
	}
	const allowed = "GET, POST, PUT, DELETE, LOCK, UNLOCK"
	w.Header().Set("Allow", allowed)
	return nil, refusal{http.StatusMethodNotAllowed, "want " + allowed}
}

func (h *Handler) lock(ctx context.Context, name string, info map[string]string) error {
	if info["ID"] == "" {
		return bad("the LockInfo has no ID")
	}
	l, err := h.take(ctx, name, dblock.Metadata(info))
	if errors.Is(err, dblock.ErrNotAcquired) { // perhaps by the same LOCK, sent again
		l, err = h.resume(ctx, name, info["ID"])
	}
	if errors.Is(err, errGone) {
		return errBusy // the lock was released meanwhile, or is waited for
	}
	if err != nil {
		return err
	}
	// Detach finds that the lock was lost. The token was raised before that, and before the run
	// reads the state: no earlier run writes after that read.
	if err := l.Detach(ctx, h.expiry); err != nil {
		return errors.Join(err, l.Unlock(ctx))
	}
	return nil
}

// unlock releases the lock of a run; id "": of any run.
func (h *Handler) unlock(ctx context.Context, name, id string) error {
	l, err := h.resume(ctx, name, id)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.Unlock(ctx)
}

// resume takes up the lock of a run, whose token was raised before the lock was detached; id "": of
// any run. It returns errBusy while another request has the lock: that one may still fail.
func (h *Handler) resume(ctx context.Context, name, id string) (*dblock.Lock, error) {
	token, err := h.held(ctx, name, id)
	if err != nil {
		return nil, err
	}
	l, err := h.client.Resume(ctx, name, token)
	if errors.Is(err, dblock.ErrNotHeld) {
		return nil, errBusy
	}
	return l, err
}

// write writes the state of a run, or nil. id "": of a run without locking, which takes the lock
// for a moment.
func (h *Handler) write(ctx context.Context, name, id string, state []byte) error {
	if id != "" {
		token, err := h.held(ctx, name, id)
		if err != nil {
			return err
		}
		return h.states.put(ctx, name, token, state)
	}
	l, err := h.take(ctx, name)
	if errors.Is(err, dblock.ErrNotAcquired) {
		holder, err := h.holder(ctx, name)
		if err != nil {
			return err
		}
		return holder.locked()
	}
	if err != nil {
		return err
	}
	defer func() { _ = l.Unlock(ctx) }() // after an error the client goes on trying
	return h.states.put(ctx, name, l.Token(), state)
}

// take takes a lock, and refuses the writes of earlier locks from then on.
func (h *Handler) take(ctx context.Context, name string, options ...dblock.LockOption) (*dblock.Lock, error) {
	l, err := h.client.TryLock(ctx, name, options...)
	if err != nil {
		return nil, err
	}
	if err := h.states.raise(ctx, name, l.Token()); err != nil {
		return nil, errors.Join(err, l.Unlock(ctx))
	}
	return l, nil
}

// sum is the value of Content-MD5.
func sum(body []byte) string {
	hash := md5.Sum(body)
	return base64.StdEncoding.EncodeToString(hash[:])
}
