package postgres

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// want is a driver.Request as TakeRows and JoinTogether read it.
type want struct {
	Order                                          int
	Name, Session, Host, Thread, Attempt, Metadata string
	Lease, MinHold                                 int64
	Units, Of                                      int
	Passable                                       bool
}

func wanted(order int, r driver.Request) want {
	return want{
		Order: order, Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Metadata: r.Metadata,
		Lease: r.Lease.Microseconds(), MinHold: r.MinHold.Microseconds(), Units: r.Units, Of: r.Of, Passable: r.Passable,
	}
}

// TakeAll is one round trip: it makes the rows that are missing, and then locks all and judges
// them.
func (e *engine) TakeAll(ctx context.Context, rs []driver.Request) ([]driver.Grant, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	names, wants, wait := make([]string, len(rs)), make([]want, len(rs)), false
	for i, r := range rs {
		wait = wait || r.Wait
		names[i], wants[i] = r.Name, wanted(i, r)
	}
	var row postgresdb.TakeRowsRow
	var grants []driver.Grant
	err := e.db.transact(ctx,
		query(postgresdb.SetLockTimeout, e.lockTimeoutFor(wait)),
		query(postgresdb.EnsureRows, list(names)),
		query(postgresdb.TakeRows, list(wants)).into(&row, func() {
			grants = append(grants, driver.Grant{Token: row.Token, Lease: rs[len(grants)].Lease})
		}),
	)
	if err != nil {
		return nil, pgserver.Interpret(err)
	}
	return grants, nil
}

// change is a request or a release as BatchRows reads it.
type change struct {
	Order                                          int
	Token                                          int64 // of a release
	Name, Session, Host, Thread, Attempt, Metadata string
	Lease, MinHold                                 int64
}

// Batch is one round trip.
func (e *engine) Batch(ctx context.Context, takes []driver.Request, releases []driver.Held) ([]driver.Grant, []bool, error) {
	grants, released := make([]driver.Grant, len(takes)), make([]bool, len(releases))
	changes := make([]change, 0, len(takes)+len(releases))
	names := make([]string, len(takes))
	for i, r := range takes {
		names[i] = r.Name
		changes = append(changes, change{
			Order: i, Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Metadata: r.Metadata,
			Lease: r.Lease.Microseconds(), MinHold: r.MinHold.Microseconds(),
		})
	}
	for i, h := range releases {
		changes = append(changes, change{Order: len(takes) + i, Token: h.Token, Name: h.Name, Session: h.Session})
	}
	var row postgresdb.BatchRowsRow
	statements := []statement{query(postgresdb.BatchRows, list(changes)).into(&row, func() {
		if i := int(row.Nth); i < len(takes) {
			grants[i] = driver.Grant{Token: row.Token, Lease: takes[i].Lease}
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
