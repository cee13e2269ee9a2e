package postgres

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// batched is a request or a release as BatchRows reads it.
type batched struct {
	Order                                          int
	Token                                          int64 // of a release
	Name, Session, Host, Thread, Attempt, Metadata string
	Lease                                          int64
}

// Batch is one round trip.
func (e *engine) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) ([]driver.Grant, []bool, error) {
	grants, released := make([]driver.Grant, len(takes)), make([]bool, len(releases))
	changes := make([]batched, 0, len(takes)+len(releases))
	names := make([]string, len(takes))
	for i, r := range takes {
		names[i] = r.Name
		changes = append(changes, batched{
			Order: i, Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Metadata: r.Metadata,
			Lease: r.Lease.Microseconds(),
		})
	}
	for i, h := range releases {
		changes = append(changes, batched{Order: len(takes) + i, Token: h.Token, Name: h.Name, Session: h.Session})
	}
	var row postgresdb.BatchRowsRow
	statements := []statement{query(postgresdb.BatchRows, list(changes)).into(&row, func() {
		if i := int(row.Nth); i < len(takes) {
			grants[i] = driver.Grant{First: row.Token, Token: row.Token, Lease: takes[i].Lease}
		} else {
			released[i-len(takes)] = true
		}
	})}
	if len(takes) > 0 {
		statements = slices.Insert(statements, 0, query(postgresdb.SetLockTimeout, e.lockTimeout), query(postgresdb.EnsureRows, list(names)))
	}
	if err := e.db.transact(ctx, statements...); err != nil {
		return nil, nil, pgserver.Interpret(err)
	}
	return grants, released, nil
}
