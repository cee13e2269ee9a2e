package mysql

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
)

// Extend decides under the lock of the name's row, as the takeover does that would end the lease.
// The clock is read after the row was waited for.
func (e *engine) Extend(ctx context.Context, h driver.Held, d time.Duration) (left time.Duration, err error) {
	err = e.transactAt(ctx, h.Name, func(q *mysqldb.Queries) ([]string, error) {
		row, there, err := e.lockRow(ctx, q, h.Name, true)
		if err != nil || !there {
			return nil, notHeld(err)
		}
		p, there, err := findPart(ctx, q, h.Name, row, h.Session, h.Token)
		if err != nil || !there || h.Shared != (p.units > 0) {
			return nil, notHeld(err)
		}
		now, err := q.Clock(ctx)
		if err != nil || !p.expiresAt.Valid || p.expiresAt.Int64 <= now {
			return nil, notHeld(err)
		}
		p.expiresAt.Int64 = max(p.expiresAt.Int64, now+d.Microseconds())
		left = microseconds(p.expiresAt.Int64 - now)
		return nil, p.extend(ctx, q)
	})
	if err != nil {
		return 0, err
	}
	return left, nil
}

// extend writes the end of the fixed lease.
func (p part) extend(ctx context.Context, q *mysqldb.Queries) error {
	if p.units > 0 {
		return q.ExtendShare(ctx, mysqldb.ExtendShareParams{Name: p.name, Token: p.token, ExpiresAt: p.expiresAt})
	}
	return q.ExtendLock(ctx, mysqldb.ExtendLockParams{Name: p.name, ExpiresAt: p.expiresAt})
}
