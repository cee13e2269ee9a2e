package postgres

import (
	"context"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// want is a driver.Request as TakeRows reads it.
type want struct {
	Order                                          int
	Name, Session, Host, Thread, Attempt, Metadata string
	Lease, MinHold                                 int64
	Units, Of                                      int
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
		names[i] = r.Name
		wants[i] = want{
			Order: i, Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt, Metadata: r.Metadata,
			Lease: r.Lease.Microseconds(), MinHold: r.MinHold.Microseconds(), Units: r.Units, Of: r.Of,
		}
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

func (e *engine) ReleaseAll(ctx context.Context, held []driver.Held) ([]driver.Held, error) {
	if len(held) == 0 {
		return nil, nil
	}
	names := make([]string, len(held))
	for i, h := range held {
		names[i] = h.Name
	}
	type released struct {
		name  string
		token int64
	}
	var row postgresdb.ReleaseRowsRow
	gone := make(map[released]bool, len(held))
	err := e.transact(ctx,
		query(postgresdb.LockRows, list(names)),
		query(postgresdb.ReleaseRows, list(held)).into(&row, func() { gone[released{row.Name, row.Token}] = true }),
	)
	if err != nil {
		return nil, pgserver.Interpret(err)
	}
	var rest []driver.Held
	for _, h := range held {
		if !gone[released{h.Name, h.Token}] {
			rest = append(rest, h)
		}
	}
	return rest, nil
}
