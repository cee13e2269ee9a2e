package mysql

import (
	"context"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// short has the ways of single statements. The comment of each case counts the round trips, and
// those of the general way. A case that saves less than half of them is left to that. Several ops
// are a batch.
func (d *innoDB) short(
	ctx context.Context, e *engine, ops []protocol.Op,
) (results []protocol.Result, done bool, err error) {
	if len(ops) != 1 {
		results, err = e.batch(ctx, ops)
		return results, true, err
	}
	switch op := ops[0].(type) {
	case protocol.Take: // 1, general 4; for a name without a row 5, general 8
		if op.Units > 0 || op.Members > 1 { // such a request needs more than the name's row
			return nil, false, nil
		}
		result, err := d.takeWhole(ctx, e, op.Request)
		return []protocol.Result{result}, true, mysqlserver.Interpret(err)
	case protocol.Removal: // 1, general 4
		if op.Cause == protocol.ByHolder && !op.Shared && !op.Guarded && !op.Contended {
			n, err := e.queries().ReleaseIdle(ctx, mysqldb.ReleaseIdleParams{
				Name: op.Name, Session: op.Session, Token: op.Token,
			})
			return []protocol.Result{{Outcome: protocol.Done}}, n > 0, mysqlserver.Interpret(err)
		}
	}
	return nil, false, nil
}

// takeWhole takes a whole name that is free. After a failure it looks for the reason: the row is
// missing, locked at the moment, or not free.
func (d *innoDB) takeWhole(ctx context.Context, e *engine, r protocol.Request) (protocol.Result, error) {
	if result, err := d.takeFree(ctx, e, r); result.Done() || err != nil {
		return result, err
	}
	row, there, err := e.retryRow(ctx, e.queries(), r.Name, r.Patient)
	if err == nil && !there {
		_, err = e.queries().MakeRow(ctx, r.Name)
	}
	if err != nil || there && !rowOf(r.Name, row).Free(0, 0, row.NowUs) {
		return protocol.Result{}, err
	}
	return d.takeFree(ctx, e, r)
}

// takeFree takes a whole name that is free, unless the name rests or another transaction has locked
// its row.
func (d *innoDB) takeFree(ctx context.Context, e *engine, r protocol.Request) (protocol.Result, error) {
	token, err := d.take(ctx, e.queries(), mysqldb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: lease(r.Lease), MinHold: lease(r.MinHold), Metadata: plainJSON(r.Metadata),
	})
	if err != nil || token == 0 {
		return protocol.Result{}, err
	}
	grant := protocol.Grant{First: token, Token: token, Lease: r.Lease}
	return protocol.Result{Outcome: protocol.Done, Grant: grant}, nil
}
