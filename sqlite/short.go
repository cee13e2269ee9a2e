package sqlite

import (
	"context"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/protocol"
)

// short runs an op in fewer statements than general, or does nothing: done is false. The comment of
// each case counts its statements and those of general. Join has no short way: a client joins after
// it has found the name taken.
func short(ctx context.Context, w *writer, op protocol.Op) (result protocol.Result, done bool, err error) {
	switch op := op.(type) {
	case protocol.Take: // 1, general 2; for a name without a row 1, general 4
		if op.Units == 0 && op.MinHold <= 0 {
			result, err = takeFree(ctx, w, op.Request)
			return result, true, err
		}
	case protocol.Removal: // 1, general 2
		if !op.Contended {
			return releaseIdle(ctx, w, op)
		}
	case protocol.Idle: // the same; general cannot release a whole name that this case leaves
		result, done, err = releaseIdle(ctx, w, op.Removal)
		return result, done || !op.Shared, err
	}
	return result, false, nil
}

// takeFree takes a whole name that is free.
func takeFree(ctx context.Context, w *writer, r protocol.Request) (protocol.Result, error) {
	row, taken, err := found(w.TakeLock(ctx, sqlitedb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		More: int64(max(r.Members, 1) - 1), Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
	}))
	if err != nil || !taken {
		return protocol.Result{}, err
	}
	w.keep(row.LastToken, row.AcquiredAt, 0)
	grant := protocol.Grant{First: row.FirstToken, Token: row.LastToken, Lease: r.Lease}
	return protocol.Result{Outcome: protocol.Done, Grant: grant}, nil
}

// releaseIdle releases a whole name without waiters.
func releaseIdle(ctx context.Context, w *writer, r protocol.Removal) (result protocol.Result, done bool, err error) {
	if r.Cause != protocol.ByHolder || r.Shared {
		return result, false, nil
	}
	n, err := w.ReleaseIdle(ctx, sqlitedb.ReleaseIdleParams{Name: r.Name, Session: r.Session, Token: r.Token})
	if n == 0 {
		return result, false, err
	}
	return protocol.Result{Outcome: protocol.Done}, true, err
}
