package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// rows are what a session has of its holds in the database.
type rows struct {
	*Client
	in *clientSession
}

func (c *Client) rows(h *hold) rows { return rows{c, h.in} }

// settle finds out what a hold is, where that is not known.
func (g rows) settle(ctx context.Context, h *hold) error {
	if err := g.single(ctx, h); err != nil || !h.mode.Load().vague {
		return err
	}
	if err := lockWithin(ctx, h.conversion.TryLock); err != nil {
		return err
	}
	defer h.conversion.Unlock()
	err := g.ascertain(ctx, h)
	if errors.Is(err, driver.ErrNotHeld) {
		g.lose(h, err)
		err = lost(err)
	}
	return err
}

// ascertain finds out what a hold is after an unanswered conversion, and makes the member of a
// cohort a holder by itself. MUST be called with conversion locked.
func (g rows) ascertain(ctx context.Context, h *hold) error {
	was := h.mode.Load()
	if h.ctx.Err() != nil {
		return nil
	}
	if err := g.single(ctx, h); err != nil || !was.vague {
		return err
	}
	state, err := g.look(ctx, g.in.ID, h.name)
	if err != nil {
		return err
	}
	for _, own := range state.Granted {
		if own.Attempt != h.id {
			continue
		}
		now := *was
		now.vague, now.yielding = false, false
		now.token = own.Grant.Token
		now.last = now.token
		switch {
		case state.Sharing == 0:
			now.units, now.of = 0, 0
			if was.yielding { // its Downgrade may still run: not with another token
				now.token, err = g.raise(ctx, driver.Held{Name: h.name, Session: g.in.ID, Token: now.token}, now.token+1)
				now.last = now.token
				if errors.Is(err, driver.ErrNotHeld) { // it has run since the look, or the lock is gone
					return g.ascertain(ctx, h)
				}
				if err != nil {
					return err
				}
			}
		case now.units == 0:
			now.units, now.of = 1, driver.Readers
		}
		h.mode.Store(&now)
		return nil
	}
	return driver.ErrNotHeld
}

// raise lifts the token of a hold in the database.
func (g rows) raise(ctx context.Context, h driver.Held, token int64) (raised int64, err error) {
	err = g.change(ctx, g.in, h.Name, func(n *protocol.Name) (err error) {
		raised, err = protocol.Raise(n, h, token)
		return err
	})
	return raised, err
}

func (g rows) confirm(ctx context.Context, h *hold) error {
	return g.insist(ctx, func(ctx context.Context) error {
		state, err := g.engine.Look(ctx, g.in.ID, []string{h.name})
		if err != nil {
			return err
		}
		for _, own := range append(state, driver.State{})[0].Granted {
			if own.Attempt == h.id {
				return nil
			}
		}
		g.lose(h, driver.ErrNotHeld)
		return lost(driver.ErrNotHeld)
	})
}

// release gives what is not relied upon any more to the next. It is safe to repeat: after an answer
// that was lost, not to hold the lock any more is success. MUST be called with the hold's mu
// locked.
func (g rows) release(ctx context.Context, h *hold) error {
	if g.registry.state(h.attempt) == Gone { // UnlockTx has released it, as the client has heard
		g.promote(ctx, h)
		return nil
	}
	if h.cohort != nil {
		switch passed, err := g.handOn(ctx, h); {
		case err != nil:
			g.in.cohorts.end(h.cohort)
			g.abandon(g.in, h.attempt, false)
			return err
		case passed:
			g.history.record(h, KindReleased, "")
			return nil
		}
	}
	began, away := g.config.Clock.Now(), g.absent()
	queued := true // those whom an UnlockTx may have detached: where that is not known, a look tells
	defer func() { g.resolve(h, queued) }()
	for tries := 1; ; tries++ {
		asked := g.config.Clock.Now()
		r := protocol.Release(h.held(), h.contended || g.registry.state(h.attempt) != Releasing, h.guarded.Load())
		if h.mode.Load().late {
			r = protocol.Undo(g.in.ID, h.name, h.id)
			r.Guarded = h.guarded.Load()
		}
		left, err := g.giveBack(ctx, r)
		switch {
		case err == nil && (left || r.Cause == driver.ByAttempt):
			queued = false // it was rolled back
			g.registry.transition(h.attempt, finish)
			g.history.record(h, KindReleased, "")
			return nil
		case err == nil:
			was := g.registry.state(h.attempt)
			g.registry.transition(h.attempt, finish)
			if was == Releasing {
				if h.unanswered {
					return nil
				}
				return lost(driver.ErrNotHeld)
			}
			g.history.record(h, KindReleased, "") // by UnlockTx, or by an earlier Unlock
			g.promote(ctx, h)
			return nil
		case errors.Is(err, driver.ErrGuarded): // it counts as released, and goes to the next once the transaction has ended
			g.abandon(g.in, h.attempt, false)
			g.history.record(h, KindReleased, "")
			return nil
		case !g.in.Alive(): // it was held when Unlock began, and is no loss
			g.registry.transition(h.attempt, finish)
			return driver.Fail(driver.ErrUnavailable, fmt.Errorf("the lock ended with its session, and the database did not say that it is released: %w", err))
		case !g.transient(err) || away.tooLong(g.Client, err) || ctx.Err() != nil,
			errors.Is(err, driver.ErrBusy) && g.closing() && asked-began > contract.CleanupTimeout: // Close does not wait for the application's transactions
			g.abandon(g.in, h.attempt, true)
			return err
		}
		h.unanswered = h.unanswered || residueOf(err) == unsure
		backOff(ctx, tries)
	}
}

// handOn gives the lock of a cohort to the next member. False: the database has to be told.
func (g rows) handOn(ctx context.Context, h *hold) (passed bool, err error) {
	if h.guarded.Load() { // by a transaction that has locked the whole database
		g.detach(g.in, h)
	}
	for {
		passed, wait := g.in.cohorts.pass(h.cohort, func() { g.registry.transition(h.attempt, pass) })
		if wait == nil {
			return passed, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// resolve has the members that an UnlockTx may have detached wait where they are in the queue, or
// ask anew.
func (g rows) resolve(h *hold, queued bool) {
	if h.cohort != nil {
		g.in.cohorts.end(h.cohort)
		g.resume(g.in, h.cohort, queued)
	}
}

// single makes the member of a cohort a holder by itself.
func (g rows) single(ctx context.Context, h *hold) error {
	done := g.detach(g.in, h)
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return h.over()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// giveBack gives a lock up: without waiters together with those that the session's other goroutines
// release meanwhile.
func (g rows) giveBack(ctx context.Context, r driver.Removal) (left bool, err error) {
	if r.Cause == driver.ByHolder && !r.Contended && !r.Shared && !r.Guarded {
		done, alone := g.in.batcher.Alone()
		if alone {
			defer done()
		} else if o, err := g.in.batcher.Do(ctx, change{release: r.Held()}); o.done || err != nil {
			return o.done, err
		}
		r.Contended = !alone // it may have waiters, and is not asked for them again
	}
	_, left, err = g.remove(ctx, g.in, r)
	return left, err
}

// promote hands on a name that UnlockTx left free with a queue, where the engine does it so. It is
// a hint like any wake-up: a waiter that hears nothing does it itself.
func (g rows) promote(ctx context.Context, h *hold) {
	_, err := g.reclaim(ctx, g.in, h.name, driver.Holder{})
	if err != nil && !g.transient(err) {
		g.config.Log.Warn("dblock: handing on after UnlockTx failed", "name", h.name, "error", err)
	}
}
