package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Run runs all ops in one transaction.
func (e *engine) Run(ctx context.Context, ops ...protocol.Op) (results []protocol.Result, err error) {
	how := writing{commits: relaxed}
	for _, op := range ops {
		how.patience = max(how.patience, patienceOf(protocol.Waits(op))) // 0: no bound
	}
	err = e.write(ctx, how, func(ctx context.Context, w *writer) (c changed, err error) {
		results = make([]protocol.Result, len(ops))
		for i, op := range protocol.Together(ops) {
			var done bool
			if results[i], done, err = short(ctx, w, op); err == nil && !done {
				results[i], err = general(ctx, w, op, &c)
			}
			if err != nil {
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

// general runs an op in a transaction that has the write lock, and writes the op's changes.
func general(ctx context.Context, w *writer, op protocol.Op, c *changed) (protocol.Result, error) {
	row, now, there, err := lockRow(ctx, w.Queries, op.On())
	if err != nil {
		return protocol.Result{}, err
	}
	n := protocol.Open(row, now, source{ctx, w.Queries, op.On()})
	result, err := op.Apply(n)
	if err != nil || !there && !n.Written() {
		return result, err
	}
	return result, c.write(ctx, w, row, n, there)
}

// changed collects the hints of a transaction, which are sent once it has committed.
type changed struct {
	notices []notice
	joined  []string // sessions that wait for something now
}

// write runs fn as one transaction, possibly more than once, and notifies the sessions concerned
// after the commit.
func (e *engine) write(
	ctx context.Context, how writing, fn func(ctx context.Context, w *writer) (changed, error),
) error {
	var c changed
	err := e.db.writeAs(ctx, how, func(ctx context.Context, w *writer) (err error) {
		c, err = fn(ctx, w)
		return err
	})
	for _, session := range c.joined { // also after an error: the commit may have been made
		wake(session)
	}
	if err == nil {
		e.deliver(c.notices)
	}
	return err
}

// patienceOf returns the time for which a request waits while another transaction has locked the
// database.
func patienceOf(wait bool) time.Duration {
	if wait {
		return 0
	}
	return briefly
}

// found turns sql.ErrNoRows into false.
func found[T any](row T, err error) (T, bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return row, false, nil
	}
	return row, err == nil, err
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// lockRow reads the row of a name, and the clock. The transaction's write lock covers the row.
func lockRow(
	ctx context.Context, q *sqlitedb.Queries, name string,
) (row protocol.Row, now int64, there bool, err error) {
	is, there, err := found(q.LockRow(ctx, name))
	if err == nil && !there {
		now, err = q.Clock(ctx)
		return protocol.Row{Name: name, Head: 1, Next: 1}, now, false, err
	}
	return protocol.Row{
		Name: name, Session: is.Session, Host: is.Host, Thread: is.Thread, Attempt: is.Attempt,
		First: is.FirstToken, Last: is.LastToken, Token: is.Token, Since: is.AcquiredAt, Ends: is.ExpiresAt,
		Rests: is.RestsUntil, Metadata: is.Metadata, Asked: is.Asked, Units: int(is.SharedUnits),
		Capacity: int(is.Capacity), Mixed: is.Mixed, Waiters: int(is.Waiters), Head: is.Head, Next: is.NextTicket,
	}, is.NowUs, there, err
}
