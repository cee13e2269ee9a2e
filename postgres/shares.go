package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func (e *engine) takeShare(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	return taken(ctx, e.alone, query(postgresdb.TakeShare, postgresdb.TakeShareParams{
		Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
		Lease: r.Lease.Microseconds(), Metadata: r.Metadata, Units: int32(r.Units), Capacity: int32(r.Of), LockTimeout: e.lockTimeoutFor(r.Wait),
	}), r.Lease)
}

// refuseCapacity says why a request did not join a queue: nil if it was not for the number of
// units, and the name free.
func (e *engine) refuseCapacity(ctx context.Context, r driver.Request) error {
	var capacity int32
	var other bool
	err := e.db.exec(ctx, query(postgresdb.OtherCapacity, postgresdb.OtherCapacityParams{
		Name: r.Name, Capacity: int32(r.Of),
	}).found(&capacity, &other))
	if err != nil || !other {
		return pgserver.Interpret(err)
	}
	return otherCapacity(r.Name, int(capacity), r.Of)
}

func otherCapacity(name string, is, wanted int) error {
	return driver.Fail(driver.ErrCapacity, fmt.Errorf("%q has %s now, and %s were asked for", name, inUnits(is), inUnits(wanted)))
}

func inUnits(of int) string {
	if of == driver.Readers {
		return fmt.Sprintf("readers (%d units)", of)
	}
	return fmt.Sprintf("%d units", of)
}

func (e *engine) Downgrade(ctx context.Context, h driver.Held) ([]driver.Handoff, error) {
	var is postgresdb.StandingRow
	var there bool
	var d handed
	err := e.handOver(ctx, h.Name,
		query(postgresdb.Downgrade, postgresdb.DowngradeParams{
			Name: h.Name, Session: h.Session, Token: h.Token, Readers: driver.Readers,
		}),
		query(postgresdb.Standing, postgresdb.StandingParams{Name: h.Name, Session: h.Session, Token: h.Token}).found(&is, &there),
		d.over(postgresdb.HandOverParams{Self: h.Session, Name: h.Name}),
	)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return d.next, driver.ErrNotHeld
	case is.Units == 0:
		return d.next, otherCapacity(h.Name, int(is.Capacity), driver.Readers)
	}
	return d.next, nil
}

func (e *engine) Upgrade(ctx context.Context, h driver.Held, attempt string) (driver.Grant, bool, error) {
	var locked string
	var there bool
	var is postgresdb.StandingRow
	err := e.transact(ctx,
		query(postgresdb.LockRow, h.Name).found(&locked, &there),
		query(postgresdb.Upgrade, postgresdb.UpgradeParams{Name: h.Name, Session: h.Session, Attempt: attempt}),
		query(postgresdb.Standing, postgresdb.StandingParams{Name: h.Name, Session: h.Session, Attempt: attempt}).found(&is, &there),
	)
	switch {
	case err != nil:
		return driver.Grant{}, false, pgserver.Interpret(err)
	case is.Token == 0:
		return driver.Grant{}, false, driver.ErrNotHeld
	case is.Units > 0:
		return driver.Grant{}, false, nil
	}
	return driver.Grant{Token: is.Token, Contended: is.Waiters > 0, Lease: leftOf(is.ExpiresAt, is.Now)}, true, nil
}

// leftOf is what is left of a fixed lease, as a Grant tells it: 0 where there is none, and -1 where
// it is over.
func leftOf(expiresAt, now int64) time.Duration {
	switch {
	case expiresAt == 0:
		return 0
	case expiresAt <= now:
		return -1
	}
	return microseconds(expiresAt - now)
}
