package httpidem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/dblock-go/dblock"
)

// endTimeout bounds each statement that ends a request's transaction. The request may have ended
// before.
const endTimeout = 10 * time.Second

// savepoint is set before the handler runs, and released after it.
const savepoint = "dblock_httpidem"

// errUnproven: MariaDB answers so where KILL QUERY or max_statement_time has cut a statement short.
var errUnproven = errors.New("the database has answered a statement without running it")

// Middleware runs requests once for each key. It is safe for concurrent use.
type Middleware[TX any] struct {
	client *dblock.Client[TX]
	db     Database[TX]
	sql    statements
	config config
}

// New returns a middleware with the client's locks, in transactions of the same database. It does
// no I/O.
//
// It returns dblock.ErrInvalidOption for a nil client or db, another engine, and options out of
// range.
func New[TX any](client *dblock.Client[TX], db Database[TX], options ...Option) (*Middleware[TX], error) {
	if client == nil || db == nil {
		return nil, invalid("the client or the database is nil")
	}
	if _, err := Schema(db.Engine()); err != nil {
		return nil, err
	}
	c, err := configOf(db.Engine(), options)
	if err != nil {
		return nil, err
	}
	return &Middleware[TX]{client, db, statementsOf[db.Engine()], c}, nil
}

// inRequest is the key of a request's transaction in its context.
type inRequest struct{}

// Tx returns the transaction of a request, from the context of the request that the handler got.
// Outside of such a request it returns the zero value. The middleware commits it, or rolls it back.
func Tx[TX any](ctx context.Context) TX {
	tx, _ := ctx.Value(inRequest{}).(TX)
	return tx
}

// Handler returns a handler that runs next once for each key.
func (m *Middleware[TX]) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := m.answer(w, r, next)
		var refused problem
		switch {
		case err == nil:
			a.send(w)
			return
		case !errors.As(err, &refused): // also a commit with an unknown outcome, which the next request resolves
			if r.Context().Err() == nil || !errors.Is(err, r.Context().Err()) { // else the client hung up as it waited
				m.config.log.ErrorContext(r.Context(), "dblock: httpidem", "method", r.Method, "path", r.URL.Path,
					"err", err)
			}
			refused = problem{
				Title: "The request was not completed", Status: http.StatusServiceUnavailable,
				Detail: "Send it again, with the same Idempotency-Key.",
			}
		}
		refused.Type = m.config.page
		refused.send(w)
	})
}

// answer returns the answer to a request after its transaction has ended.
func (m *Middleware[TX]) answer(w http.ResponseWriter, r *http.Request, next http.Handler) (_ *answer, err error) {
	key, err := keyOf(r.Header)
	if err != nil {
		return nil, err
	}
	if key == "" && m.config.required {
		return nil, problem{
			Title: "Idempotency-Key is missing", Status: http.StatusBadRequest,
			Detail: "This operation needs the header Idempotency-Key.",
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(m.config.maxBody)))
	if err != nil {
		return nil, unread(err)
	}
	ctx := context.WithoutCancel(r.Context()) // a client that hangs up asks again: finish what was begun
	beginning, cancel := context.WithCancel(ctx)
	defer cancel() // when the transaction has ended: one of database/sql ends with its context
	stop := context.AfterFunc(r.Context(), cancel)
	tx, err := m.db.Begin(beginning)
	if err != nil {
		return nil, err
	}
	committed := false
	defer func() { // also if the handler panics
		if !committed {
			ctx, cancel := context.WithTimeout(ctx, endTimeout)
			defer cancel()
			_ = m.db.Rollback(ctx, tx)
		}
	}()
	if !stop() { // beginning has ended, and with it perhaps the transaction
		return nil, r.Context().Err()
	}
	id, fingerprint := dblock.Name("idempotency", m.config.scope(r), key), fingerprintOf(r, body)
	if key != "" {
		earlier, err := m.enter(r.Context(), tx, id, fingerprint)
		if err != nil || earlier != nil {
			return earlier, err
		}
		if _, err := m.db.Exec(ctx, tx, "SAVEPOINT "+savepoint); err != nil {
			return nil, err
		}
	}
	a := &answer{header: http.Header{}, most: m.config.maxReply}
	again := r.WithContext(context.WithValue(r.Context(), inRequest{}, tx))
	again.Body = io.NopCloser(bytes.NewReader(body))
	next.ServeHTTP(a, again)
	a.WriteHeader(http.StatusOK)
	if a.large {
		return nil, problem{
			Title: "The answer is too large", Status: http.StatusInternalServerError, Detail: errTooLarge.Error(),
		}
	}
	if !a.final() {
		return a, nil
	}
	ctx, end := context.WithTimeout(ctx, endTimeout)
	defer end()
	if key != "" {
		if err := m.store(ctx, tx, id, fingerprint, a); err != nil {
			return nil, err
		}
	}
	committed = true // or its outcome is unknown
	if err := m.db.Commit(ctx, tx); err != nil {
		return nil, err
	}
	return a, nil
}

// enter takes the lock of a key until the transaction ends. It returns the answer to an earlier
// request with the key; nil: there is none. It is first in the transaction, so that the transaction
// sees what the last holder has committed.
func (m *Middleware[TX]) enter(ctx context.Context, tx TX, id string, fingerprint []byte) (*answer, error) {
	lock := m.client.TryLockTx
	if m.config.wait > 0 {
		lock = m.client.LockTx
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.config.wait)
		defer cancel()
	}
	err := lock(ctx, tx, id)
	if errors.Is(err, dblock.ErrNotAcquired) {
		return nil, problem{
			Title: "A request is outstanding for this Idempotency-Key", Status: http.StatusConflict,
			Detail: "A request with the same key is being processed. Send this one again later.",
		}
	}
	if err != nil {
		return nil, err
	}
	var a answer
	var first, header []byte
	found, err := m.db.Row(ctx, tx, m.sql.read, []any{id}, &first, &a.status, &header, &a.body)
	switch {
	case err == nil && !found:
		return nil, errUnproven
	case err != nil || a.status == 0:
		return nil, err
	case !bytes.Equal(first, fingerprint):
		return nil, problem{
			Title: "Idempotency-Key is already used", Status: http.StatusUnprocessableEntity,
			Detail: "Another request had the same key: it differs in its method, its path or its body.",
		}
	}
	if err := json.Unmarshal(header, &a.header); err != nil {
		return nil, err
	}
	a.header.Set("Idempotent-Replayed", "true")
	return &a, nil
}

// store writes the answer into the transaction that has the key's lock. It fails if that
// transaction has ended below the handler: MySQL and MariaDB end a transaction at a deadlock, and
// commit it before a statement that changes a table. Then there is no savepoint.
func (m *Middleware[TX]) store(ctx context.Context, tx TX, id string, fingerprint []byte, a *answer) error {
	if _, err := m.db.Exec(ctx, tx, "RELEASE SAVEPOINT "+savepoint); err != nil {
		return err
	}
	header, err := a.stored()
	if err != nil {
		return err
	}
	body := append([]byte{}, a.body...) // not NULL
	keep := int64(m.config.keep / time.Second)
	rows, err := m.db.Exec(ctx, tx, m.sql.write, id, fingerprint, a.status, header, body, keep)
	if err == nil && rows == 0 {
		err = errUnproven
	}
	return err
}

// Sweep deletes the answers that have expired. Call it now and then, from a job of package jobs,
// say.
func (m *Middleware[TX]) Sweep(ctx context.Context) error {
	tx, err := m.db.Begin(ctx)
	if err == nil {
		if _, err = m.db.Exec(ctx, tx, m.sql.sweep); err == nil {
			err = m.db.Commit(ctx, tx)
		} else {
			err = errors.Join(err, m.db.Rollback(context.WithoutCancel(ctx), tx))
		}
	}
	if err != nil {
		return fmt.Errorf("dblock: httpidem: sweep: %w", err)
	}
	return nil
}
