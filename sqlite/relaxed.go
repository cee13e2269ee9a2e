package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
)

// tick is how far the database's clock steps.
const tick = time.Millisecond

var errLasting = errors.New("this transaction must outlive the machine")

// writeRelaxed is writeWithin for what may be lost with the machine, and so with all holders: its
// commit does not wait for the disk. Where fn reports that what it did must last, it is undone and
// done anew with a commit that waits as the application has set it.
func (d *database) writeRelaxed(ctx context.Context, patience time.Duration, fn func(ctx context.Context, q *sqlitedb.Queries) (lasting bool, err error)) error {
	if !d.main.Load() || !d.ownCaches(ctx) {
		return d.writeWithin(ctx, patience, func(ctx context.Context, q *sqlitedb.Queries) error {
			_, err := fn(ctx, q)
			return err
		})
	}
	err := d.writeAs(ctx, patience, relaxed, func(ctx context.Context, q *sqlitedb.Queries) error {
		lasting, err := fn(ctx, q)
		if err == nil && lasting {
			err = errLasting
		}
		return err
	})
	if !errors.Is(err, errLasting) {
		return err
	}
	return d.writeWithin(ctx, patience, func(ctx context.Context, q *sqlitedb.Queries) error {
		_, err := fn(ctx, q)
		return err
	})
}

// mustLast reports whether a grant must not be lost with the machine. One with a rest is to be kept
// by those who come after. A token that the clock has not reached, which was raised or is from
// before the clock was set back, would be granted again; all others are below the clock that the
// machine starts with.
func mustLast(token, now int64, rest time.Duration) bool {
	return rest > 0 || token >= now+tick.Microseconds()
}
