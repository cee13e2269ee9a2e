package postgres

import (
	"context"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// Vacate returns no grants with an error: rows that told of them may have come before a COMMIT that
// failed.
func (e *engine) Vacate(ctx context.Context, v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	var d handed
	if err := e.vacate(ctx, v, &d); err != nil {
		return nil, false, err
	}
	return d.next, d.given, nil
}

func (e *engine) vacate(ctx context.Context, v driver.Vacancy, d *handed) error {
	switch v.Cause {
	case driver.ByHolder:
		defer func() {
			if len(d.next) > 0 {
				e.runs.Store(len(d.next) > 1)
			}
		}()
		if !v.Shared {
			if err := e.releaseWhole(ctx, v, d); err != nil || d.given {
				return err
			}
		}
		return e.handOver(ctx, v.Name, d.release(v.Self, v.Held(), true)...)
	case driver.ByAttempt:
		return e.handOver(ctx, v.Name, append([]statement{d.leave(v.Session, v.Name, v.Attempt), d.pass(v)}, d.either(postgresdb.HandOverParams{
			Self: v.Self, Name: v.Name, Session: v.Session, Attempt: v.Attempt,
		})...)...)
	case driver.ByTime:
		return e.reclaim(ctx, v, d)
	case driver.ByForce:
		return e.breach(ctx, v, d)
	}
	// Nothing leaves: it cooled down until now, or only an operator leaves it so.
	err := e.handOver(ctx, v.Name, d.over(postgresdb.HandOverParams{Self: v.Self, Name: v.Name}))
	d.given = len(d.next) > 0
	return err
}

func (e *engine) Leave(ctx context.Context, session, name string, attempts []string) ([]driver.Handoff, error) {
	var d handed
	err := e.handOver(ctx, name, d.leave(session, name, attempts...), d.over(postgresdb.HandOverParams{Self: session, Name: name}))
	if err != nil {
		return nil, err
	}
	return d.next, nil
}

// releaseWhole releases a whole name in the common cases: in one statement where nobody waits, and
// in two to a waiter or a run. Each does nothing in any other case, and is a transaction by itself:
// the general hand-over, which costs the server several times as much, is seldom sent. toRun does
// what toHead does, and costs more: it is sent where the engine's last hand-over was to a run.
func (e *engine) releaseWhole(ctx context.Context, v driver.Vacancy, d *handed) error {
	if !v.Contended {
		err := e.db.exec(ctx, query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{
			Name: v.Name, Session: v.Session, Token: v.Token, LockTimeout: e.lockTimeout,
		}).found(new(postgresdb.ReleaseIdleRow), &d.given))
		if err != nil || d.given {
			return pgserver.Interpret(err)
		}
	}
	if e.runs.Load() {
		return e.handOver(ctx, v.Name, d.toRun(v))
	}
	return e.handOver(ctx, v.Name, d.toHead(v))
}

func (e *engine) reclaim(ctx context.Context, v driver.Vacancy, d *handed) error {
	if !v.LeaseOver { // then it is the session that must be dead
		if dead, err := e.Expire(ctx, v.Session); err != nil || !dead {
			return err
		}
	}
	if v.Token == 0 {
		return e.handOver(ctx, v.Name, d.leave(v.Session, v.Name, v.Attempt), d.over(postgresdb.HandOverParams{Self: v.Self, Name: v.Name}))
	}
	return e.takeOver(ctx, quarryOf(v), d.either(postgresdb.HandOverParams{
		Self: v.Self, Name: v.Name, Session: v.Session, Token: v.Token, Reclaim: true,
	})...)
}

func (e *engine) breach(ctx context.Context, v driver.Vacancy, d *handed) error {
	q, n := quarryOf(v), v.Event
	record := query(postgresdb.RecordBroken, postgresdb.RecordBrokenParams{
		Name: v.Name, Session: v.Session, Token: v.Token, Attempt: v.Attempt,
		Kind: n.Kind, EventToken: n.Token, EventSession: n.Session, EventHost: n.Host, EventThread: n.Thread,
		Detail: n.Detail, Metadata: n.Metadata,
	})
	err := e.takeOver(ctx, q, append([]statement{record, requeueMembers(q)}, d.either(postgresdb.HandOverParams{
		Self: v.Self, Name: v.Name, Session: v.Session, Token: v.Token,
	})...)...)
	e.announce(ctx, q, err)
	return err
}

func quarryOf(v driver.Vacancy) quarry {
	return quarry{Name: v.Name, Session: v.Session, Token: v.Token}
}

// handOver locks a name's row, and then gives up something of it and hands on what is free.
func (e *engine) handOver(ctx context.Context, name string, statements ...statement) error {
	lock := query(postgresdb.LockRowWithin, postgresdb.LockRowWithinParams{LockTimeout: e.lockTimeout, Name: name})
	return pgserver.Interpret(e.db.transact(ctx, append([]statement{lock}, statements...)...))
}

// handed is what came of a hand-over. There is one way to hand on, whatever was given up: over, the
// last of its statements. toHead and toRun are short cuts.
type handed struct {
	next  []driver.Handoff
	given bool // a lock or a share was given up
}

// leave gives up places in the queue.
func (d *handed) leave(session, name string, attempts ...string) statement {
	return query(postgresdb.LeaveQueue, postgresdb.LeaveQueueParams{
		Name: name, Session: session, Attempts: list(attempts),
	}).found(new(string), &d.given)
}

// release gives up what a holder has, and hands on. lazily allows the commit not to reach the disk
// where nobody waits.
func (d *handed) release(self string, h driver.Held, lazily bool) []statement {
	p := postgresdb.HandOverParams{Self: self, Name: h.Name, Session: h.Session, Token: h.Token}
	if !h.Shared {
		return []statement{d.over(p)}
	}
	return []statement{d.share(p, lazily), d.over(postgresdb.HandOverParams{Self: self, Name: h.Name})}
}

// either is release where it is not known whether it is the whole name or a share.
func (d *handed) either(p postgresdb.HandOverParams) []statement {
	return []statement{d.share(p, true), d.over(p)}
}

func (d *handed) share(p postgresdb.HandOverParams, lazily bool) statement {
	return query(postgresdb.GiveUpShare, postgresdb.GiveUpShareParams{
		Name: p.Name, Session: p.Session, Token: p.Token, Attempt: p.Attempt, Reclaim: p.Reclaim, Lazily: lazily,
	}).found(new(postgresdb.GiveUpShareRow), &d.given)
}

// toHead gives up a whole name, and hands it to the head of the queue, or does nothing.
func (d *handed) toHead(v driver.Vacancy) statement {
	var row postgresdb.HandToHeadRow
	return query(postgresdb.HandToHead, postgresdb.HandToHeadParams{
		Name: v.Name, Session: v.Session, Token: v.Token,
	}).into(&row, func() {
		d.given = true
		d.next = []driver.Handoff{{Session: row.Session, Attempt: row.Attempt, Grant: driver.Grant{
			Token: row.Token, Contended: row.Waiters > 0,
		}}}
	})
}

// toRun does what toHead does where the holder is a run, or the head of the queue begins one.
func (d *handed) toRun(v driver.Vacancy) statement {
	var row postgresdb.HandToRunRow
	return query(postgresdb.HandToRun, postgresdb.HandToRunParams{
		Name: v.Name, Session: v.Session, Token: v.Token,
	}).into(&row, func() {
		d.given = true
		d.next = append(d.next, driver.Handoff{Session: row.Session, Attempt: row.Attempt, Grant: driver.Grant{
			Token: row.Token, Contended: row.Waiters > 0, Run: runOf(row.First, row.Last),
		}})
	})
}

func (d *handed) over(p postgresdb.HandOverParams) statement {
	var row postgresdb.HandOverRow
	return query(postgresdb.HandOver, p).into(&row, func() {
		d.given = d.given || row.Given
		if row.Session == "" {
			return
		}
		d.next = append(d.next, driver.Handoff{Session: row.Session, Attempt: row.Attempt, Grant: driver.Grant{
			Token: row.Token, Contended: row.Waiters > 0, Lease: microseconds(row.Lease), Run: runOf(row.First, row.Last),
		}})
	})
}

// runOf is the run with these tokens. One by itself is none.
func runOf(first, last int64) driver.Range {
	if first == last {
		return driver.Range{}
	}
	return driver.Range{First: first, Last: last}
}
