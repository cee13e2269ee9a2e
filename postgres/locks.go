package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
)

func (e *engine) Take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	var row postgresdb.TakeLockRow
	var taken bool
	err := e.db.exec(ctx, query(postgresdb.TakeLock, postgresdb.TakeLockParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, Patience: e.patience(r.Wait),
	}).found(&row, &taken))
	if err != nil || !taken {
		return driver.Grant{}, false, interpret(err)
	}
	return driver.Grant{Token: row.Token, Lease: r.Lease}, true, nil
}

// Enqueue never takes the lock itself: a name that is free by now is Gone, and taken by the next Take. It is a
// transaction only for the sake of READ COMMITTED: at other levels a row that many want fails all but one of them.
func (e *engine) Enqueue(ctx context.Context, r driver.Request) (driver.Grant, driver.Outcome, error) {
	var row postgresdb.JoinQueueRow
	var queued bool
	err := e.transact(ctx, query(postgresdb.JoinQueue, postgresdb.JoinQueueParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
	}).found(&row, &queued))
	if err != nil || !queued {
		return driver.Grant{}, driver.Gone, interpret(err)
	}
	return driver.Grant{}, driver.Queued, nil
}

func (e *engine) Reenter(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	var name string
	var dead, there, reentered bool
	var row postgresdb.ReenterRow
	err := e.transact(ctx,
		query(postgresdb.LockRow, r.Name).found(&name, &there),
		query(postgresdb.LockHolder, postgresdb.LockHolderParams{Name: r.Name, Host: r.Host, Thread: r.Thread}).found(&dead, &there),
		query(postgresdb.TouchHolder, postgresdb.TouchHolderParams{Name: r.Name, Host: r.Host, Thread: r.Thread}),
		query(postgresdb.Reenter, postgresdb.ReenterParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: r.Metadata,
		}).found(&row, &reentered),
	)
	if err != nil || !reentered {
		return driver.Grant{}, false, interpret(err)
	}
	return driver.Grant{Token: row.Token, Contended: row.Waiters > 0, Lease: r.Lease}, true, nil
}

func (e *engine) SetHolds(ctx context.Context, h driver.Held, holds int) error {
	var name string
	var held bool
	err := e.db.exec(ctx, query(postgresdb.SetHolds, postgresdb.SetHoldsParams{
		Name: h.Name, Session: h.Session, Token: h.Token, Holds: int32(holds), Patience: e.patient,
	}).found(&name, &held))
	if err == nil && !held {
		return driver.ErrNotHeld
	}
	return interpret(err)
}

func (e *engine) Release(ctx context.Context, h driver.Held, contended bool) (driver.Handoff, error) {
	if !contended {
		var row postgresdb.ReleaseIdleRow
		var released bool
		err := e.db.exec(ctx, query(postgresdb.ReleaseIdle, postgresdb.ReleaseIdleParams{
			Name: h.Name, Session: h.Session, Token: h.Token, Patience: e.patient,
		}).found(&row, &released))
		if err != nil || released {
			return driver.Handoff{}, interpret(err)
		}
	}
	next, held, err := e.handOver(ctx, postgresdb.HandOverParams{
		Self: h.Session, Name: h.Name, Session: h.Session, Token: h.Token,
	})
	if err == nil && !held {
		err = driver.ErrNotHeld
	}
	return next, err
}

func (e *engine) Leave(ctx context.Context, session, name, attempt string) (driver.Handoff, error) {
	next, _, err := e.handOver(ctx, postgresdb.HandOverParams{
		Self: session, Name: name, Session: session, Attempt: attempt,
	}, query(postgresdb.LeaveQueue, postgresdb.LeaveQueueParams{Name: name, Attempt: attempt}))
	return next, err
}

func (e *engine) Reclaim(ctx context.Context, self, name string, holder driver.Holder) (driver.Handoff, bool, error) {
	if holder.Session == "" { // only an operator leaves a name so
		return e.handOver(ctx, postgresdb.HandOverParams{Self: self, Name: name})
	}
	if holder.Grant.Lease >= 0 { // not a fixed lease that is over: then it is the session that must be dead
		if dead, err := e.Expire(ctx, holder.Session); err != nil || !dead {
			return driver.Handoff{}, false, err
		}
	}
	var dead, there bool
	return e.handOver(ctx, postgresdb.HandOverParams{
		Self: self, Name: name, Session: holder.Session, Token: holder.Grant.Token, Reclaim: true,
	}, query(postgresdb.LockSession, holder.Session).found(&dead, &there), query(postgresdb.TouchSession, holder.Session))
}

// handOver gives a locked name to the next waiter, after what must be done between locking and giving. It reports
// false where the name was not held as the parameters say.
func (e *engine) handOver(ctx context.Context, p postgresdb.HandOverParams, before ...statement) (driver.Handoff, bool, error) {
	var name string
	var row postgresdb.HandOverRow
	var there, held bool
	statements := append([]statement{query(postgresdb.LockRow, p.Name).found(&name, &there)}, before...)
	err := e.transact(ctx, append(statements, query(postgresdb.HandOver, p).found(&row, &held))...)
	if err != nil || row.Session == "" {
		return driver.Handoff{}, held, interpret(err)
	}
	return driver.Handoff{Session: row.Session, Attempt: row.Attempt, Grant: driver.Grant{
		Token: row.Token, Contended: row.Waiters > 0, Lease: microseconds(row.Lease),
	}}, true, nil
}

func (e *engine) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	list, err := json.Marshal(names)
	if err != nil {
		return nil, err
	}
	var row postgresdb.LookRow
	states := make([]driver.State, 0, len(names))
	index := make(map[string]int, len(names)) // where in states a name stands
	err = e.db.exec(ctx, query(postgresdb.Look, postgresdb.LookParams{Session: session, Names: string(list)}).into(&row, func() {
		i, seen := index[row.Name]
		if !seen {
			i, index[row.Name] = len(states), len(states)
			states = append(states, driver.State{Name: row.Name, Holder: holder(row), Waiters: int(row.Waiters)})
		}
		if row.Queued != "" {
			states[i].Queued = append(states[i].Queued, row.Queued)
		}
	}))
	return states, interpret(err)
}

func holder(row postgresdb.LookRow) driver.Holder {
	if row.Session == "" {
		return driver.Holder{}
	}
	h := driver.Holder{
		Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt,
		Grant: driver.Grant{Token: row.Token, Contended: row.Waiters > 0},
		Since: time.UnixMicro(row.AcquiredAt), Left: microseconds(row.SessionExpiresAt - row.Now),
	}
	if row.ExpiresAt.Valid {
		h = h.WithFixedLease(microseconds(row.ExpiresAt.Int64 - row.Now))
	}
	return h
}

func (e *engine) Listen(ctx context.Context, session string, ready func(), wake func(driver.Hint)) error {
	return interpret(e.db.listen(ctx, "dblock_"+session, ready, wake))
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
