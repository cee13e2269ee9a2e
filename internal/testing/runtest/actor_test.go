package runtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/protocol"
)

var errHeld = errors.New("it is held")

// actor locks and unlocks on a machine, one call at a time. The scheduler alone uses it.
type actor struct {
	m         *machine
	index     int
	asking    bool   // Acquire is under way
	trying    bool   // likewise, and it does not wait
	working   bool   // another call is under way
	risky     bool   // likewise, one that changes what the lock is
	want      string // the name that it asks for, or has
	cancel    context.CancelFunc
	cancelled bool
	aim       *aim // what it resumes; nil: it does not

	locks []*client.Lock // handles of the lock that it has; none: it has none
	hold  *grant         // what it has
	ended bool           // the context of the lock has ended, and the judge knows
	given bool           // a transaction has released it
	inTx  bool           // UnlockTx was called, and Guard has not shown since that it was rolled back
	tx    *transaction   // is open
}

func newActor(m *machine, index int) *actor { return &actor{m: m, index: index} }

func (a *actor) String() string { return fmt.Sprintf("%s%d", a.m, a.index) }

// active reports whether a call is under way, something is held, or a transaction is open.
func (a *actor) active() bool { return a.asking || a.working || len(a.locks) > 0 || a.tx != nil }

// believes reports whether the actor relies on its lock: its context has not ended, and its session
// is trusted.
func (a *actor) believes() bool {
	return len(a.locks) > 0 && !a.given && !a.m.stopped && relied(a.locks[0])
}

func relied(l *client.Lock) bool {
	return l.Context().Err() == nil && l.Until().After(time.Now())
}

// act lets an actor do something.
func (w *world) act() bool {
	a, any := one(w, some(w.actors, func(a *actor) bool {
		return !a.asking && !a.working && !a.m.stopped && (!a.m.closing || a.m.closed && a.active()) &&
			(!w.ending || a.active() || len(w.resumable()) > 0)
	}))
	if !any {
		return false
	}
	n := w.rng.IntN(100)
	switch {
	case a.tx != nil && len(a.locks) > 0 && a.tx.attempt != "" && n < w.detaching/4:
		a.detach()
		return true
	case a.tx != nil:
		a.tx.end(n < 70)
		return true
	case len(a.locks) == 0:
		if row, any := one(w, w.resumable()); any && (w.ending || w.rng.IntN(4) > 0) {
			a.resume(row)
			return true
		}
		a.acquire(n >= 10)
		return true
	case a.given && !w.ending && n < 50:
		a.reenter()
		return true
	case w.ending || a.given || a.ended || n < w.plain:
		a.unlock()
		return true
	}
	if w.rng.IntN(100) < w.detaching {
		a.detach()
		return true
	}
	if w.rng.IntN(100) < w.given {
		a.tx = &transaction{a: a}
		a.work("unlocks in a transaction", func(ctx context.Context, l *client.Lock) error {
			_, err := a.m.client.UnlockTx(ctx, a.tx, l)
			a.inTx = a.inTx || err == nil
			return err
		})
		return true
	}
	switch n = w.rng.IntN(100); {
	case a.inTx:
		a.guard()
	case n < 25:
		a.work("records", func(ctx context.Context, l *client.Lock) error { return l.Record(ctx, "test", "") })
	case n < 40:
		a.risk("raises", func(ctx context.Context, l *client.Lock) error {
			_, err := l.Raise(ctx, l.Token()+1000)
			return err
		})
	case n < 55:
		a.risk("downgrades", func(ctx context.Context, l *client.Lock) error { return l.Downgrade(ctx) })
	case n < 65:
		a.risk("upgrades", func(ctx context.Context, l *client.Lock) error { return l.TryUpgrade(ctx) })
	case n < 85 && !a.locks[0].Shared():
		a.reenter()
	default:
		a.guard()
	}
	return true
}

// guard opens a transaction that the lock guards.
func (a *actor) guard() {
	a.tx = &transaction{a: a}
	a.work("guards", func(ctx context.Context, l *client.Lock) error {
		_, err := a.m.client.Guard(ctx, a.tx, l)
		a.inTx = a.inTx && err != nil
		return err
	})
}

// acquire asks for a name.
func (a *actor) acquire(wait bool) {
	w := a.m.world
	a.want = names[0]
	if w.rng.IntN(8) == 0 {
		a.want = names[1]
	}
	a.asking, a.trying, a.cancelled = true, !wait, false
	w.note("%s: asks for %s, waits %t", a, a.want, wait)
	metadata := ""
	if w.rng.IntN(8) == 0 {
		metadata = "{}" // no member of a cohort
	}
	a.ask(context.Background(), a.acquiring(metadata, wait))
}

// acquiring is a call of Acquire.
func (a *actor) acquiring(metadata string, wait bool) func(ctx context.Context) (*client.Lock, error) {
	return func(ctx context.Context) (*client.Lock, error) {
		return a.m.client.Acquire(ctx, &client.Want{Request: protocol.Request{Name: a.want, Metadata: metadata}}, wait)
	}
}

// resume takes up what a row has, which is detached more often than not.
func (a *actor) resume(row protocol.Row) {
	w := a.m.world
	a.want, a.asking, a.trying, a.cancelled = row.Name, true, false, false
	a.aim = w.journal.aimAt(row)
	w.note("%s: resumes %s %d", a, row.Name, row.Last)
	a.ask(context.Background(), func(ctx context.Context) (*client.Lock, error) {
		return a.m.client.Resume(ctx, row.Name, row.Last)
	})
}

func (a *actor) ask(ctx context.Context, call func(ctx context.Context) (*client.Lock, error)) {
	ctx, a.cancel = context.WithCancel(ctx)
	go func() {
		l, err := call(ctx)
		late := err == nil && l.Context().Err() == nil && !l.Until().After(time.Now())
		a.m.world.finish(func() { a.acquired(l, err, late) })
	}()
}

// acquired is what Acquire or Resume has returned. late: the session's deadline had passed, and the
// lock does not say so.
func (a *actor) acquired(l *client.Lock, err error, late bool) {
	w := a.m.world
	a.cancel()
	a.cancel = nil
	asked := a.asking
	aim := a.aim
	a.asking, a.working, a.aim = false, false, nil
	switch {
	case err != nil:
		w.note("%s: has not got it: %v", a, err)
		w.journal.refused(a, err, asked, aim)
	case len(a.locks) > 0 && a.locks[0].Context() == l.Context():
		a.locks = append(a.locks, l)
		w.note("%s: has entered it again", a)
		if a.given {
			w.fail("%s enters token %d of %s again, which a transaction has released", a, l.Token(), a.want)
		}
	default:
		a.locks, a.ended, a.given, a.inTx = []*client.Lock{l}, false, false, false
		w.journal.begin(a, l, late)
	}
}

// reenter asks for what the actor has.
func (a *actor) reenter() {
	a.working, a.cancelled = true, false
	a.m.world.note("%s: enters again", a)
	a.ask(context.WithoutCancel(a.locks[0].Context()), a.acquiring("", true))
}

// detach detaches the lock. The belief ends with its context, before the statement is sent.
func (a *actor) detach() {
	w := a.m.world
	l, attempt, d := a.locks[0], a.hold.attempt, ttl/32<<w.rng.IntN(7)
	until := time.Now().Add(d)
	w.note("%s: detaches %d for %v", a, l.Token(), d)
	a.call("has detached", func(ctx context.Context) error { return l.Detach(ctx, d) }, func(err error) {
		w.journal.detached(a, err, attempt, until)
		if l.Context().Err() != nil {
			a.locks = nil
		}
	})
}

// unlock takes back one entry. With the last one the belief ends before the call.
func (a *actor) unlock() {
	w := a.m.world
	last := len(a.locks) - 1
	l := a.locks[last]
	a.locks = a.locks[:last]
	w.note("%s: unlocks %d", a, l.Token())
	a.call("has unlocked", func(ctx context.Context) error { return l.Unlock(ctx) }, func(err error) {
		w.journal.unlocked(a, err)
		if err != nil && !errors.Is(err, client.ErrLost) && !errors.Is(err, client.ErrClosed) && last > 0 {
			a.locks = append(a.locks, l) // it counts as entered still
		}
	})
}

// work does something with the lock that the actor has.
func (a *actor) work(what string, do func(ctx context.Context, l *client.Lock) error) {
	l := a.locks[0]
	a.m.world.note("%s: %s %d", a, what, l.Token())
	a.call(what, func(ctx context.Context) error { return do(ctx, l) }, func(error) { a.m.world.journal.moved(a) })
}

// risk is work whose lost answer leaves open what the lock is.
func (a *actor) risk(what string, do func(ctx context.Context, l *client.Lock) error) {
	a.risky = true
	a.work(what, do)
}

func (a *actor) call(what string, do func(ctx context.Context) error, then func(err error)) {
	ctx, cancel := context.WithCancel(context.Background())
	a.working, a.cancel, a.cancelled = true, cancel, false
	go func() {
		err := do(ctx)
		a.m.world.finish(func() {
			cancel()
			a.working, a.risky, a.cancel = false, false, nil
			a.m.world.note("%s: %s: %v", a, what, err)
			if err != nil && a.tx != nil {
				a.tx.end(false)
			}
			then(err)
		})
	}()
}

// abandon ends what the actor does in a world that went wrong.
func (a *actor) abandon() {
	if a.cancel != nil {
		a.cancel()
	}
}
