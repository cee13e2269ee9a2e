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

// Change is the general way: a transaction that locks the name's row, runs the transition, and
// writes what that leaves. The listeners of those who are told are woken after the commit: what
// they were granted they find in the tables.
func (e *engine) Change(ctx context.Context, how driver.How, transition func(n *protocol.Name) error) ([]driver.Handoff, error) {
	var next []driver.Handoff
	var refused string // the attempt whose guard refused the transition
	err := e.transactAtWith(ctx, how.Name, func(db mysqldb.DBTX) (wake []string, err error) {
		q := mysqldb.New(db)
		row, there, err := e.obtainRow(ctx, q, how)
		if err != nil {
			return nil, err
		}
		if err := restate(ctx, q, how.Name, &row); err != nil {
			return nil, err
		}
		src := &source{ctx: ctx, engine: e, q: q, name: how.Name, refused: &refused}
		n := protocol.Open(rowOf(how.Name, row), row.NowUs, src)
		if err := transition(n); err != nil || !there {
			return nil, err
		}
		next = n.Handoffs
		return write(ctx, q, n, how.Self, row)
	})
	if err != nil {
		if refused != "" && errors.Is(err, driver.ErrGuarded) {
			e.announce(ctx, refused)
		}
		return nil, err
	}
	return next, nil
}

// obtainRow locks the row of a name, and makes it where that is wanted. A missing row is that of a
// name that nobody has ever had: its transition needs the time, too.
func (e *engine) obtainRow(ctx context.Context, q *mysqldb.Queries, how driver.How) (mysqldb.LockRowRow, bool, error) {
	row, there, err := e.lockRow(ctx, q, how.Name, how.Wait)
	if err == nil && !there && how.Make {
		if _, err = q.EnsureRow(ctx, mysqldb.EnsureRowParams{Name: how.Name, Keep: 0}); err == nil {
			row, there, err = e.lockRow(ctx, q, how.Name, how.Wait)
		}
		if err == nil && !there {
			err = driver.Fail(driver.ErrRetry, errGone)
		}
	}
	if err == nil && !there {
		row.FirstTicket, row.NextTicket = 1, 1
		row.NowUs, err = q.Clock(ctx)
	}
	return row, there, err
}

var errGone = errors.New("the name's row was purged at once")

func (e *engine) Join(ctx context.Context, r driver.Request) (grant driver.Grant, outcome driver.Outcome, err error) {
	if joined, err := e.joinQueue(ctx, r); joined || err != nil {
		return driver.Grant{}, driver.Queued, err
	}
	_, err = e.Change(ctx, driver.How{Name: r.Name, Self: r.Session, Make: true, Wait: r.Wait}, func(n *protocol.Name) (err error) {
		grant, outcome, err = protocol.Join(n, r)
		return err
	})
	if err != nil {
		return driver.Grant{}, 0, err
	}
	return grant, outcome, nil
}

// Remove releases what nobody waits for in a single statement, and hands over to one waiter by the
// short way. A session that is to be dead is
// expired before, in a transaction of its own: the order of locks puts its row behind the name's.
func (e *engine) Remove(ctx context.Context, r driver.Removal) (next []driver.Handoff, left bool, err error) {
	if r.Cause == driver.ByHolder && !r.Contended && !r.Shared && !r.Guarded {
		released, err := e.queries().ReleaseIdle(ctx, mysqldb.ReleaseIdleParams{Name: r.Name, Session: r.Session, Token: r.Token})
		if err != nil || released > 0 {
			return nil, err == nil, mysqlserver.Interpret(err)
		}
	}
	if r.Cause == driver.ByHolder && r.Contended && !r.Shared && !r.Guarded {
		if next, err := e.handToHead(ctx, r); len(next) > 0 || err != nil {
			return next, err == nil, err
		}
	}
	if r.Cause == driver.ByTime && !r.LeaseOver {
		if dead, err := e.Expire(ctx, r.Session); err != nil || !dead {
			return nil, false, err
		}
	}
	next, err = e.Change(ctx, driver.How{Name: r.Name, Self: r.Self, Wait: true}, func(n *protocol.Name) (err error) {
		left, err = protocol.Remove(n, r)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return next, left, nil
}

// others are the sessions that a change concerns, each once, without the one that makes it, which
// knows.
func others(self string, sessions ...string) []string {
	sessions = slices.DeleteFunc(sessions, func(s string) bool { return s == self })
	slices.Sort(sessions)
	return slices.Compact(sessions)
}
