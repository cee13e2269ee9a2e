package dblocktest

import (
	"context"

	"github.com/dblock-go/dblock/driver"
)

// incarnation tells how long a database remembers.
type incarnation struct{ since, floor int64 }

func (l *line) Incarnation(ctx context.Context, renew bool, floor int64) (driver.Incarnation, error) {
	return ask(ctx, l, func() (driver.Incarnation, error) {
		fresh := l.incarnation == nil
		if fresh || renew {
			l.incarnation = &incarnation{l.now(), max(floor, 0)}
		}
		i := driver.Incarnation{Age: microseconds(l.now() - l.incarnation.since), Floor: l.incarnation.floor, Fresh: fresh}
		if floor < 0 {
			i.Floor = max(i.Floor, l.now())
			for _, n := range l.locks {
				i.Floor = max(i.Floor, n.token)
			}
		}
		return i, nil
	})
}
