package mysql

import (
	"context"
	"errors"
	"slices"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Run implements driver.Names.
func (e *engine) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	if err := e.meet(ctx, e.db); err != nil {
		return nil, mysqlserver.Interpret(err)
	}
	results, done, err := e.server().short(ctx, e, ops)
	switch {
	case done || err != nil:
		return results, err
	case len(ops) != 1:
		return e.together(ctx, ops)
	}
	result, err := e.general(ctx, ops[0])
	if err != nil {
		return nil, err
	}
	return []protocol.Result{result}, nil
}

// general runs a transaction that locks the name's row, runs the op, and writes its changes. After
// the commit it wakes the listeners of the sessions that get a hint, which find their grants in the
// tables.
func (e *engine) general(ctx context.Context, op protocol.Op) (result protocol.Result, err error) {
	if r, removes := op.(protocol.Removal); removes && r.Cause == protocol.ByTime && !r.LeaseOver {
		// A session that is to be dead is expired first, in a transaction of its own: in the order
		// of locks its row comes after the name's, and it is dead also if a guard refuses the
		// takeover.
		if dead, err := e.Expire(ctx, r.Session); !dead || err != nil {
			return result, err
		}
	}
	var refused string // the attempt whose guard refused the op
	err = e.transactAtWith(ctx, op.On(), func(db mysqldb.DBTX) (wake []string, err error) {
		result, wake, err = e.apply(ctx, db, op, protocol.Waits(op), &refused)
		return wake, err
	})
	if err != nil {
		if refused != "" && errors.Is(err, driver.ErrGuarded) {
			e.announce(ctx, refused)
		}
		return protocol.Result{}, err
	}
	return result, nil
}

// apply is the part of general inside the transaction. Without wait, it retries a locked row for a
// moment only. If a guard refuses the op, refused becomes the guard's attempt.
func (e *engine) apply(
	ctx context.Context, db mysqldb.DBTX, op protocol.Op, wait bool, refused *string,
) (result protocol.Result, wake []string, err error) {
	q := mysqldb.New(db)
	row, there, err := e.obtainRow(ctx, q, op, wait, false)
	if err != nil {
		return result, nil, err
	}
	for {
		src := &source{ctx: ctx, engine: e, q: q, name: op.On(), refused: refused}
		n := protocol.Open(rowOf(op.On(), row), row.NowUs, src)
		if result, err = op.Apply(n); err != nil || !there && !n.Written() {
			return result, nil, err
		}
		if there {
			wake, err = writer{q, db, e.server().facts().lists, op.By()}.write(ctx, n, row)
			return result, wake, err
		}
		if row, there, err = e.obtainRow(ctx, q, op, wait, true); err != nil {
			return result, nil, err
		}
	}
}

// together runs several ops in one transaction, one after the other. A row that is locked is left
// out: ErrBusy comes before the op has written anything.
func (e *engine) together(ctx context.Context, ops []protocol.Op) (results []protocol.Result, err error) {
	err = e.transactWith(ctx, func(db mysqldb.DBTX) (wake []string, err error) {
		results = make([]protocol.Result, len(ops))
		for i, op := range protocol.Together(ops) {
			result, woken, err := e.apply(ctx, db, op, false, new(string))
			if errors.Is(err, driver.ErrBusy) {
				continue
			} else if err != nil {
				return nil, err
			}
			results[i], wake = result, append(wake, woken...)
		}
		return wake, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// obtainRow locks the row of a name, and first makes it if make is true. A missing row is returned
// empty, except for the time.
func (e *engine) obtainRow(
	ctx context.Context, q *mysqldb.Queries, op protocol.Op, wait, make bool,
) (row mysqldb.LockRowRow, there bool, err error) {
	if make {
		_, err = q.EnsureRow(ctx, mysqldb.EnsureRowParams{Name: op.On(), Keep: 0})
	}
	if err == nil {
		row, there, err = e.lockRow(ctx, q, op.On(), wait)
	}
	switch {
	case err != nil:
	case there:
		err = restate(ctx, q, op.On(), &row)
	case make:
		err = driver.Fail(driver.ErrRetry, errGone)
	default:
		row.FirstTicket, row.NextTicket = 1, 1
		row.NowUs, err = q.Clock(ctx)
	}
	return row, there, err
}

var errGone = errors.New("the name's row was purged at once")

// others returns the sessions that a change concerns, each once, without self.
func others(self string, sessions ...string) []string {
	sessions = slices.DeleteFunc(sessions, func(s string) bool { return s == self })
	slices.Sort(sessions)
	return slices.Compact(sessions)
}
