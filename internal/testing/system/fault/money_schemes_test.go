//go:build unix

package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	// errand is the work under a lease.
	errand = 30 * time.Millisecond
	// longErrand is for bugs: a stop is to fall into it.
	longErrand = 200 * time.Millisecond
	// impatience is how long some wait for a lock.
	impatience = 100 * time.Millisecond
)

// underLockTx reads and writes in the transaction that holds the lock.
func (t *teller[TX]) underLockTx(ctx context.Context, random *rand.Rand, m move) error {
	return t.within(ctx, func(tx TX) error {
		if t.config.Bug != bugNoLockTx {
			if err := t.lockTx(ctx, random, t.client, schemeLockTx, tx, m.names()); err != nil {
				return err
			}
		}
		source, target, err := t.read(ctx, tx, m)
		if err != nil {
			return err
		}
		linger(random, t.config.Instant)
		return t.write(ctx, tx, m, source, target)
	})
}

// lockTx waits for as long as it takes, or not so long, or not at all. A worker that did not get
// the lock still has a transaction.
func (t *teller[TX]) lockTx(
	ctx context.Context, random *rand.Rand, client txLocker[TX], scheme string, tx TX, names []string,
) error {
	var err error
	switch random.IntN(10) {
	case 0:
		err = client.TryLockTx(ctx, tx, names...)
	case 1, 2:
		ctx, cancel := context.WithTimeout(ctx, 1+time.Duration(random.Int64N(int64(impatience))))
		defer cancel()
		err = client.LockTx(ctx, tx, names...)
	default:
		return client.LockTx(ctx, tx, names...)
	}
	if errors.Is(err, dblock.ErrNotAcquired) {
		var state interface{ SQLState() string }
		if _, after := t.number(ctx, tx, "SELECT 1"); errors.As(after, &state) && state.SQLState() == aborted {
			t.wrong(scheme, "the transaction is aborted after %v", err)
		}
	}
	return err
}

// aborted is what PostgreSQL answers in a transaction in which a statement has failed.
const aborted = "25P02"

// underGuard reads under a lease, works for long, and then writes in a transaction that the lease
// guards. It does not look whether it still has the lock: that is Guard's business.
func (t *teller[TX]) underGuard(ctx context.Context, random *rand.Rand, m move) error {
	var locks []*dblock.Lock
	defer func() {
		for _, l := range locks {
			_ = l.Unlock(ctx) // lost, or the database is away: then it expires
		}
	}()
	for _, name := range m.names() {
		l, err := t.lease(ctx, random, name)
		if err != nil {
			return err
		}
		locks = append(locks, l)
	}
	var source, target int64
	err := t.within(ctx, func(tx TX) (err error) {
		source, target, err = t.read(ctx, tx, m)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading: %v", err) // not with %w: whether that transaction was committed does not matter
	}
	if t.config.Bug == bugNoGuard {
		linger(random, longErrand)
		return t.within(ctx, func(tx TX) error { return t.write(ctx, tx, m, source, target) })
	}
	linger(random, errand)
	return t.within(ctx, func(tx TX) error {
		guard := func() error { return t.client.Guard(ctx, tx, locks...) }
		unlock := func() error { return t.client.UnlockTx(ctx, tx, locks...) }
		write := func() error { return t.write(ctx, tx, m, source, target) }
		if t.config.Bug == bugUnlocksEarly {
			for _, l := range locks {
				if err := l.Unlock(ctx); err != nil {
					return err
				}
			}
			linger(random, errand)
			return write()
		}
		steps := []func() error{guard, write, unlock}
		switch random.IntN(4) {
		case 0:
			steps = []func() error{write, guard, unlock} // what was written before is guarded as well
		case 1:
			steps = []func() error{guard, write} // and the deferred Unlock
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
			linger(random, t.config.Instant)
		}
		return nil
	})
}

// lease waits for a lock for as long as it takes, or not so long.
func (t *teller[TX]) lease(ctx context.Context, random *rand.Rand, name string) (*dblock.Lock, error) {
	if random.IntN(10) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 1+time.Duration(random.Int64N(int64(impatience))))
		defer cancel()
	}
	return t.client.Lock(ctx, name)
}
