//go:build unix

package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/optimistic"
)

// till is what every advisory transfer shares, and an audit has to itself.
const till = "advisory/till"

// sessionNames is how many names there are for locks that move no money.
const sessionNames = 4

func sessionName(realm string, i int) string { return fmt.Sprintf("session/%s/%d", realm, i) }

// underAdvisory moves money under LockTx: those locks live and die with the transaction that
// writes. Now and then it audits instead.
func (t *teller[TX]) underAdvisory(ctx context.Context, random *rand.Rand, m move) error {
	if t.config.Bug == bugSessionOnly {
		return t.underUnfenced(ctx, random, m)
	}
	switch random.IntN(20) {
	case 0:
		return t.auditTx(ctx, random, m)
	case 1:
		return t.audit(ctx, random, m)
	}
	return t.within(ctx, func(tx TX) error {
		if t.config.Bug != bugNoAdvisory {
			if err := t.nativeTx.LockSharedTx(ctx, tx, till); err != nil {
				return err
			}
			if err := t.lockTx(ctx, random, t.nativeTx, schemeAdvisory, tx, m.names()); err != nil {
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

// count reads the accounts in two statements, each with a snapshot of its own: only the lock makes
// them one.
func (t *teller[TX]) count(ctx context.Context, random *rand.Rand, tx TX, book string) (int64, error) {
	lower, err := t.number(ctx, tx, fmt.Sprintf("SELECT sum(balance) FROM accounts WHERE book = '%s' AND id < %d", book,
		accounts/2))
	if err != nil {
		return 0, err
	}
	linger(random, t.config.Instant)
	upper, err := t.number(ctx, tx, fmt.Sprintf("SELECT sum(balance) FROM accounts WHERE book = '%s' AND id >= %d",
		book, accounts/2))
	return lower + upper, err
}

func (t *teller[TX]) audited(m move, total int64, from, to time.Duration) error {
	if total != accounts*deposit {
		t.wrong(schemeAdvisory, "an audit from %v to %v found %+d", from, to, total-accounts*deposit)
	}
	return errNoTransfer
}

// auditTx reads in the transaction that holds the till.
func (t *teller[TX]) auditTx(ctx context.Context, random *rand.Rand, m move) error {
	return t.within(ctx, func(tx TX) error {
		if err := t.nativeTx.LockTx(ctx, tx, till); err != nil {
			return err
		}
		from := session.Boottime()
		total, err := t.count(ctx, random, tx, m.book)
		if err != nil {
			return err
		}
		return t.audited(m, total, from, session.Boottime())
	})
}

// audit reads under a session's lock, on another connection than the one that holds it. It counts
// if Unlock says that the lock was held until then.
func (t *teller[TX]) audit(ctx context.Context, random *rand.Rand, m move) error {
	l, err := t.native.Lock(ctx, till)
	if err != nil {
		return err
	}
	from := session.Boottime()
	var total int64
	err = t.within(ctx, func(tx TX) (err error) {
		total, err = t.count(ctx, random, tx, m.book)
		return err
	})
	to := session.Boottime()
	if unlocked := l.Unlock(ctx); unlocked != nil {
		return unlocked
	}
	if err != nil {
		return fmt.Errorf("auditing: %v", err)
	}
	return t.audited(m, total, from, to)
}

// underSession holds one of the server's own locks for a while, and tells of it if Unlock says that
// it was held.
func (t *teller[TX]) underSession(ctx context.Context, random *rand.Rand, m move) error {
	name := sessionName(t.config.Realm, random.IntN(sessionNames))
	l, err := t.native.Lock(ctx, name)
	if err != nil {
		return err
	}
	from := session.Boottime()
	linger(random, errand)
	to := session.Boottime()
	if err := l.Unlock(ctx); err != nil {
		return err
	}
	t.held(schemeSession, name, from, to)
	return errNoTransfer
}

// underUnfenced is the mistake: a session's lock for writes on another connection.
func (t *teller[TX]) underUnfenced(ctx context.Context, random *rand.Rand, m move) error {
	for _, name := range m.names() {
		l, err := t.native.Lock(ctx, name)
		if err != nil {
			return err
		}
		defer l.Unlock(ctx)
	}
	var source, target int64
	err := t.within(ctx, func(tx TX) (err error) {
		source, target, err = t.read(ctx, tx, m)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading: %v", err)
	}
	linger(random, longErrand)
	return t.within(ctx, func(tx TX) error { return t.write(ctx, tx, m, source, target) })
}

// underVersions locks nothing, and repeats what others were faster at.
func (t *teller[TX]) underVersions(ctx context.Context, random *rand.Rand, m move) error {
	names := m.names()
	return optimistic.Retry(ctx, func(ctx context.Context) error {
		return t.within(ctx, func(tx TX) error {
			var versions [2]int64
			for i, name := range names {
				var err error
				if versions[i], err = optimistic.Read(ctx, tx, name); err != nil {
					return err
				}
			}
			source, target, err := t.read(ctx, tx, m)
			if err != nil {
				return err
			}
			linger(random, t.config.Instant)
			for i, name := range names {
				if t.config.Bug == bugNoBump {
					break
				}
				if err := optimistic.Bump(ctx, tx, name, versions[i]); err != nil {
					if errors.Is(err, optimistic.ErrConflict) {
						t.log(journalConflict, schemeOptimistic, m.id, nil)
					}
					return err
				}
			}
			return t.write(ctx, tx, m, source, target)
		})
	}, optimistic.Attempts(20))
}
