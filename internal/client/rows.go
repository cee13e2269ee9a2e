package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/contract"
)

// rows are what a session has of its holds in the database.
type rows struct {
	*Client
	in *clientSession
}

func (c *Client) rows(h *hold) rows { return rows{c, h.in} }

// settle finds out what a hold is, where that is not known.
func (g rows) settle(ctx context.Context, h *hold) error {
	if !g.registry.state(h.claim).unsettled() {
		return nil
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

// ascertain finds out what a hold is after an unanswered conversion, and makes the member of a run
// a plain hold. MUST be called with conversion locked.
func (g rows) ascertain(ctx context.Context, h *hold) error {
	was := g.registry.state(h.claim)
	if h.ctx.Err() != nil || !was.unsettled() {
		return nil
	}
	if was == InRun {
		select {
		case <-h.run.Settle():
			if over := g.in.over(); over != nil {
				return lost(over)
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	state, err := g.look(ctx, g.in.ID, h.name)
	if err != nil {
		return err
	}
	for _, own := range state.Granted {
		if own.Attempt != h.attempt {
			continue
		}
		now := *h.mode.Load()
		now.token = own.Grant.Token
		switch {
		case state.Sharing == 0:
			now.units, now.of = 0, 0
			if was.yielding() { // its Downgrade may still run: not with another token
				now.token, err = g.engine.Raise(ctx, driver.Held{Name: h.name, Session: g.in.ID, Token: now.token}, now.token+1)
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
		g.registry.setMode(h, now)
		g.registry.transition(h.claim, settle)
		return nil
	}
	return driver.ErrNotHeld
}

// entered records how often a hold was entered, and finds out whether it is still held.
func (g rows) entered(ctx context.Context, h *hold, entries int) error {
	ctx, cancel := contract.UntilClosed(ctx, g.answering)
	defer cancel()
	for away := g.absent(); ; {
		err := g.statement(ctx, func(ctx context.Context) error { return g.engine.SetHolds(ctx, h.held(), entries) })
		switch {
		case errors.Is(err, driver.ErrNotHeld):
			g.lose(h, err)
			return lost(err)
		case err != nil && h.ctx.Err() != nil: // by UnlockTx, where nothing else is known
			return cmp.Or(h.ended(), lost(err))
		case err == nil || !g.transient(err) || away.tooLong(g.Client, err) || ctx.Err() != nil || !g.in.Alive():
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// release gives what is not relied upon any more to the next. It is safe to repeat: after an answer
// that was lost, not to hold the lock any more is success. MUST be called with the hold's mu
// locked.
func (g rows) release(ctx context.Context, h *hold) error {
	if h.run != nil {
		var passed bool
		err := g.statement(ctx, func(ctx context.Context) (err error) {
			passed, err = g.passOn(ctx, h.claim)
			return err
		})
		if passed || err != nil {
			if err == nil {
				g.history.record(h, KindReleased, "")
			} else {
				g.abandon(g.in, h.claim, false)
			}
			return err
		}
		if g.registry.state(h.claim) == Undoing {
			if h.departure.possible() {
				return nil
			}
			return lost(errDisowned)
		}
		g.in.joins.drain(ctx, h.name)
	}
	began, away := g.config.Clock.Now(), g.absent()
	for {
		asked := g.config.Clock.Now()
		v := driver.Release(g.whole(h), h.contended || h.departure.possible())
		if h.mode.Load().late {
			v = driver.Undo(g.in.ID, h.name, h.attempt)
		}
		left, err := g.giveBack(ctx, v)
		switch {
		case err == nil && (left || v.Cause == driver.ByAttempt):
			g.releasedRun(h.claim)
			g.registry.transition(h.claim, finish)
			g.history.record(h, KindReleased, "")
			return nil
		case err == nil:
			known := !g.registry.state(h.claim).unanswered()
			if h.run != nil { // Break makes its members wait again
				g.dropRun(g.in, h.run)
				g.abandon(g.in, h.claim, false)
			} else {
				g.registry.transition(h.claim, finish)
			}
			if h.departure.possible() {
				g.promote(ctx, h)
				return nil
			}
			if known {
				return lost(driver.ErrNotHeld)
			}
			return nil
		case !g.in.Alive(): // it was held when Unlock began, and is no loss
			g.registry.transition(h.claim, finish)
			return driver.Fail(driver.ErrUnavailable, fmt.Errorf("the lock ended with its session, and the database did not say that it is released: %w", err))
		case !g.transient(err) || away.tooLong(g.Client, err) || ctx.Err() != nil,
			errors.Is(err, driver.ErrBusy) && g.closing() && asked-began > contract.CleanupTimeout: // Close does not wait for the application's transactions
			g.abandon(g.in, h.claim, true)
			return err
		}
		if g.outage(err) {
			g.registry.transition(h.claim, repeat)
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// whole is what a hold's release gives up: where it is the last member of a run, the run.
func (g rows) whole(h *hold) driver.Held {
	held := h.held()
	if h.run != nil && h.run.Releasing() {
		held.Token = h.run.Range.Last
	}
	return held
}

// giveBack gives a lock up: without waiters together with those that the session's other goroutines
// release meanwhile.
func (g rows) giveBack(ctx context.Context, v driver.Vacancy) (left bool, err error) {
	if v.Cause == driver.ByHolder && !v.Contended && !v.Shared {
		done, alone := g.in.exchange.Alone()
		if alone {
			defer done()
		} else if o, err := g.in.exchange.Do(ctx, change{release: v.Held()}); o.done || err != nil {
			return o.done, err
		}
		v.Contended = !alone // it may have waiters, and is not asked for them again
	}
	_, left, err = g.vacate(ctx, g.in, v)
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
