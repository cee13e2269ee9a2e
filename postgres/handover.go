package postgres

import (
	"context"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
)

// Release of a lock that is contended, and of a share always: something else than the lock row has
// to be read.
func (e *engine) Release(ctx context.Context, h driver.Held, contended bool) ([]driver.Handoff, error) {
	if !contended && !h.Shared {
		var row postgresdb.ReleaseIdleRow
		var released bool
		err := e.db.exec(ctx, query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{
			Name: h.Name, Session: h.Session, Token: h.Token, Patience: e.patient,
		}).found(&row, &released))
		if err != nil || released {
			return nil, pgserver.Interpret(err)
		}
	}
	var d handed
	err := e.handOver(ctx, h.Name, d.release(h.Session, h, true)...)
	switch {
	case err != nil:
		return nil, err
	case !d.given:
		return d.next, driver.ErrNotHeld
	}
	return d.next, nil
}

func (e *engine) Leave(ctx context.Context, session, name, attempt string) ([]driver.Handoff, error) {
	var d handed
	err := e.handOver(ctx, name, append(
		[]statement{query(postgresdb.LeaveQueue, postgresdb.LeaveQueueParams{Name: name, Session: session, Attempt: attempt})},
		d.either(postgresdb.HandOverParams{Self: session, Name: name, Session: session, Attempt: attempt})...)...)
	return d.next, err
}

func (e *engine) Reclaim(ctx context.Context, self, name string, holder driver.Holder) ([]driver.Handoff, bool, error) {
	var d handed
	free := postgresdb.HandOverParams{Self: self, Name: name}
	if holder.Session == "" { // it rested until now, or only an operator leaves it so
		err := e.handOver(ctx, name, d.over(free))
		return d.next, len(d.next) > 0, err
	}
	if holder.Grant.Lease >= 0 { // not a fixed lease that is over: then it is the session that must be dead
		if dead, err := e.Expire(ctx, holder.Session); err != nil || !dead {
			return nil, false, err
		}
	}
	if holder.Grant.Token == 0 {
		err := e.handOver(ctx, name, query(postgresdb.LeaveQueue, postgresdb.LeaveQueueParams{
			Name: name, Session: holder.Session, Attempt: holder.Attempt,
		}).found(new(string), &d.given), d.over(free))
		return d.next, d.given, err
	}
	q := quarry{Name: name, Session: holder.Session, Token: holder.Grant.Token}
	err := e.takeOver(ctx, q, d.either(postgresdb.HandOverParams{
		Self: self, Name: name, Session: holder.Session, Token: holder.Grant.Token, Reclaim: true,
	})...)
	return d.next, d.given, err
}

func (e *engine) Break(ctx context.Context, self, name string, holder driver.Holder, v driver.Event) ([]driver.Handoff, bool, error) {
	var d handed
	q := quarry{Name: name, Session: holder.Session, Token: holder.Grant.Token}
	record := query(postgresdb.RecordBroken, postgresdb.RecordBrokenParams{
		Name: name, Session: holder.Session, Token: holder.Grant.Token, Attempt: holder.Attempt,
		Kind: v.Kind, EventToken: v.Token, EventSession: v.Session, EventHost: v.Host, EventThread: v.Thread,
		Detail: v.Detail, Metadata: v.Metadata,
	})
	err := e.takeOver(ctx, q, append([]statement{record}, d.either(postgresdb.HandOverParams{
		Self: self, Name: name, Session: holder.Session, Token: holder.Grant.Token,
	})...)...)
	e.announce(ctx, q, err)
	return d.next, d.given, err
}

// handOver locks a name's row, and then gives up something of it and hands on what is free.
func (e *engine) handOver(ctx context.Context, name string, statements ...statement) error {
	lock := query(postgresdb.LockRowWithin, postgresdb.LockRowWithinParams{Patience: e.patient, Name: name})
	return pgserver.Interpret(e.db.transact(ctx, append([]statement{lock}, statements...)...))
}

// handed is what came of a hand-over. There is one way to hand on, whatever was given up: over, the
// last of its statements.
type handed struct {
	next  []driver.Handoff
	given bool // a lock or a share was given up
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

// either is release for who does not know whether it is the whole name or a share.
func (d *handed) either(p postgresdb.HandOverParams) []statement {
	return []statement{d.share(p, true), d.over(p)}
}

func (d *handed) share(p postgresdb.HandOverParams, lazily bool) statement {
	return query(postgresdb.GiveUpShare, postgresdb.GiveUpShareParams{
		Name: p.Name, Session: p.Session, Token: p.Token, Attempt: p.Attempt, Reclaim: p.Reclaim, Lazily: lazily,
	}).found(new(postgresdb.GiveUpShareRow), &d.given)
}

func (d *handed) over(p postgresdb.HandOverParams) statement {
	var row postgresdb.HandOverRow
	return query(postgresdb.HandOver, p).into(&row, func() {
		d.given = d.given || row.Given
		if row.Session == "" {
			return
		}
		d.next = append(d.next, driver.Handoff{Session: row.Session, Attempt: row.Attempt, Grant: driver.Grant{
			Token: row.Token, Contended: row.Waiters > 0, Lease: microseconds(row.Lease),
		}})
	})
}
