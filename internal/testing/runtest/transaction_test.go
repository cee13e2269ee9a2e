package runtest

import (
	"context"
	"errors"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// transaction is one of the application's, with what the client did in it. Its COMMIT may land long
// after the application has given it up.
type transaction struct {
	a       *actor
	name    string
	guards  protocol.Held // the hold that it guards
	attempt string        // of that
	proof   int64         // the token of the holder that guards
	gives   protocol.Held // the hold that it releases
	from    protocol.Detachment
	over    bool // nothing is done in it any more
}

// barred reports whether another transaction has locked what one needs.
func (d *tables) barred(name string, x *transaction) bool {
	if d.exclusive {
		for _, other := range d.locked {
			if other != x {
				return true
			}
		}
		return false
	}
	return d.locked[name] != nil && d.locked[name] != x
}

// do runs a statement in the transaction, on a hold that may have been detached with one token.
func (x *transaction) do(
	ctx context.Context, kind string, h protocol.Held, detached int64, run func(attempt string) error,
) error {
	of := about{name: h.Name, token: h.Token, tx: x}
	_, err := ask(ctx, x.a.m, kind, of, func() (none, error) {
		if x.over {
			return none{}, driver.ErrTxDone
		}
		attempt, err := x.tables().held(h)
		if alone := h; err != nil && detached != 0 {
			alone.Token = detached
			attempt, err = x.tables().held(alone)
		}
		if err == nil {
			err = run(attempt)
		}
		return none{}, err
	})
	return err
}

func (x *transaction) tables() *tables { return x.a.m.world.tables }

func (x *transaction) Exclusive() bool { return x.tables().exclusive }

func (x *transaction) MakeGuard(ctx context.Context, h protocol.Held, _ driver.OnSideConn) error {
	if x.Exclusive() {
		return nil
	}
	return x.do(ctx, "make guard", h, 0, func(string) error { return nil })
}

func (x *transaction) Guard(ctx context.Context, h protocol.Held, _ driver.OnSideConn) error {
	return x.do(ctx, "guard", h, 0, func(attempt string) error {
		d := x.tables()
		if d.seized[attempt] {
			return driver.ErrNotHeld
		}
		if x.attempt == "" {
			x.name, x.guards, x.attempt, x.proof = h.Name, h, attempt, x.a.hold.token
		}
		if x.Exclusive() {
			d.locked[h.Name] = x
		}
		if d.guards[attempt] == nil {
			d.guards[attempt] = map[*transaction]bool{}
		}
		d.guards[attempt][x] = true
		return nil
	})
}

func (x *transaction) Release(
	ctx context.Context, h protocol.Held, from protocol.Detachment, _ driver.OnSideConn,
) error {
	return x.do(ctx, "release in transaction", h, from.Token, func(attempt string) error {
		d := x.tables()
		for other := range d.guards[attempt] {
			if other != x {
				return driver.Fail(driver.ErrBusy, driver.ErrGuarded)
			}
		}
		x.gives, x.from = h, from
		d.locked[h.Name] = x
		return nil
	})
}

func (x *transaction) Database(context.Context) (string, error) { return "", nil }

func (x *transaction) Lock(context.Context, string, driver.Pass, bool, driver.OnSideConn) (driver.State, bool, error) {
	panic("LockTx is not played")
}

// end has the application commit or roll back. A COMMIT may be on its way for a while.
func (x *transaction) end(commit bool) {
	w := x.a.m.world
	x.a.tx, x.over = nil, true
	if commit {
		x.a.given = x.a.given || x.gives.Name != ""
		if w.faults > 0 && w.rng.IntN(4) == 0 {
			w.commits = append(w.commits, x)
			w.note("%s: the COMMIT of its transaction is on its way", x.a)
			return
		}
	}
	x.land(commit)
}

// land ends the transaction in the database.
func (x *transaction) land(commit bool) {
	w, d := x.a.m.world, x.tables()
	for name, by := range d.locked {
		if by == x {
			delete(d.locked, name)
		}
	}
	for _, guards := range d.guards {
		delete(guards, x)
	}
	if commit && x.attempt != "" {
		w.journal.guarded(x.guards, x.proof)
	}
	if commit && x.gives.Name != "" {
		_, err := d.step(drivertest.Func{Name: x.gives.Name, Do: func(n *protocol.Name) error {
			h := x.gives
			if x.from.Token != 0 {
				if _, err := (protocol.Detach{Held: h, Member: x.from}).Apply(n); err != nil {
					return err
				}
				h.Token = x.from.Token
			}
			waiters := n.Waiters
			if d.freeByTx {
				n.Waiters = 0 // so that nothing is handed over
			}
			left, err := protocol.Release(h, true, false).Apply(n)
			n.Waiters = max(n.Waiters, waiters*b2i(d.freeByTx))
			if err == nil && !left.Done() {
				err = errors.New("what UnlockTx releases is not held")
			}
			return err
		}})
		if err != nil {
			w.fail("%s: its transaction: %v", x.a, err)
		}
	}
	w.note("%s: its transaction ends, committed %t", x.a, commit)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// commit lands a COMMIT that is on its way.
func (w *world) commit() bool {
	x, any := one(w, w.commits)
	if !any {
		return false
	}
	w.commits = slices.DeleteFunc(w.commits, func(other *transaction) bool { return other == x })
	x.land(true)
	return true
}
