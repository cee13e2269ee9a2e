package sqlite

import (
	"context"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Run runs all ops in one transaction.
func (e *engine) Run(ctx context.Context, ops ...protocol.Op) (results []protocol.Result, err error) {
	how := writing{commits: relaxed}
	for _, op := range ops {
		how.patience = max(how.patience, patienceOf(protocol.Waits(op))) // 0 is without end
	}
	err = e.write(ctx, how, func(ctx context.Context, w *writer) (c changed, err error) {
		results = make([]protocol.Result, len(ops))
		for i, op := range protocol.Together(ops) {
			if results[i], c, err = runOp(ctx, w, op); err != nil {
				return changed{}, err
			}
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// runOp runs an op the short way where there is one.
func runOp(ctx context.Context, w *writer, op protocol.Op) (r protocol.Result, c changed, err error) {
	switch op := op.(type) {
	case protocol.Take:
		if op.Units == 0 && op.MinHold <= 0 {
			r, err = takeFree(ctx, w, op.Request)
			return r, changed{}, err
		}
	case protocol.Removal:
		if op.Cause == driver.ByHolder && !op.Contended && !op.Shared {
			if r, err = release(ctx, w, op); err != nil || r.Done() {
				return r, changed{}, err
			}
		}
	case protocol.Idle:
		if op.Cause == driver.ByHolder && !op.Shared {
			r, err = release(ctx, w, op.Removal)
			return r, changed{}, err
		}
	}
	return change(ctx, w, op)
}

// takeFree takes a whole name that is free.
func takeFree(ctx context.Context, w *writer, r driver.Request) (protocol.Result, error) {
	row, taken, err := found(w.TakeLock(ctx, sqlitedb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		More: int64(max(r.Members, 1) - 1), Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
	}))
	if err != nil || !taken {
		return protocol.Result{}, err
	}
	w.keep(row.LastToken, row.AcquiredAt, 0)
	grant := driver.Grant{First: row.FirstToken, Token: row.LastToken, Lease: r.Lease}
	return protocol.Result{Outcome: protocol.Done, Grant: grant}, nil
}

// release releases a whole name without waiters.
func release(ctx context.Context, w *writer, r driver.Removal) (protocol.Result, error) {
	n, err := w.ReleaseIdle(ctx, sqlitedb.ReleaseIdleParams{Name: r.Name, Session: r.Session, Token: r.Token})
	if err != nil || n == 0 {
		return protocol.Result{}, err
	}
	return protocol.Result{Outcome: protocol.Done}, nil
}
