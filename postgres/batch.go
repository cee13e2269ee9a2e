package postgres

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// batched is a request or a release as BatchRows reads it.
type batched struct {
	Order                                          int
	Token                                          int64 // of a release
	Name, Session, Host, Thread, Attempt, Metadata string
	Lease                                          int64
}

// batch runs several ops in one round trip.
func (e *engine) batch(ctx context.Context, ops []protocol.Op) ([]protocol.Result, error) {
	results := make([]protocol.Result, len(ops))
	var changes []batched
	var names []string
	for i, op := range ops {
		switch op := op.(type) {
		case protocol.Take:
			names = append(names, op.Name)
			changes = append(changes, batched{
				Order: i, Name: op.Name, Session: op.Session, Host: op.Host, Thread: op.Thread, Attempt: op.Attempt,
				Metadata: op.Metadata, Lease: op.Lease.Microseconds(),
			})
		case protocol.Removal:
			if op.Cause == driver.ByHolder && !op.Guarded {
				changes = append(changes, batched{Order: i, Token: op.Token, Name: op.Name, Session: op.Session})
			}
		}
	}
	var row postgresdb.BatchRowsRow
	statements := []statement{query(postgresdb.BatchRows, list(changes)).into(&row, func() {
		result := &results[row.Nth]
		result.Outcome = protocol.Done
		if take, takes := ops[row.Nth].(protocol.Take); takes {
			result.Grant = driver.Grant{First: row.Token, Token: row.Token, Lease: take.Lease}
		}
	})}
	if len(names) > 0 {
		statements = slices.Insert(statements, 0,
			query(postgresdb.SetLockTimeout, e.lockTimeout), query(postgresdb.EnsureRows, list(names)))
	}
	if err := e.db.transact(ctx, statements...); err != nil {
		return nil, pgserver.Interpret(err)
	}
	return results, nil
}
