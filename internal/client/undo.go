package client

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/wait"
)

// abandon undoes an attempt in the background: gives back what it got, and its place in the queue.
// With unsure, its statement may still be on its way and run after this has found nothing: so the
// session's belongings are listed afterwards, and once more with each later reconciliation. What is
// still to be answered is waited for. MUST be called within a call.
func (t *tables) abandon(s *clientSession, k *claim, unsure bool) {
	done := make(chan struct{})
	t.registry.mu.Lock()
	t.registry.move(k, abandon)
	k.undone = done
	t.registry.mu.Unlock()
	t.underWay.Go(func() {
		defer close(done)
		defer t.registry.transition(k, finish)
		if k.answered != nil {
			<-k.answered
		}
		t.giveBack(s, k)
		if unsure {
			s.Check()
		}
	})
}

// giveBack tries until the attempt has nothing any more, or its session ends: no error may leave a
// name held by nobody that knows of it.
func (t *tables) giveBack(s *clientSession, k *claim) {
	said := false
	for tries := 1; s.Context().Err() == nil && t.tidying.Err() == nil; tries++ {
		err := t.leave(s, k)
		if err == nil {
			return
		}
		longest := 500 * time.Millisecond
		if !t.transient(err) {
			if longest = t.config.TTL / 5; !said {
				t.config.Log.Warn("dblock: giving back fails, and is tried until the session ends", "name", k.name, "error", err)
			}
			said = true
		}
		if t.closing() && (said || errors.Is(err, driver.ErrBusy) && tries > 20) {
			return // it ends with the session
		}
		pause(t.tidying, min(time.Duration(tries)*20*time.Millisecond, longest))
	}
}

// leave gives back once whatever an attempt has got, together with others that are given back
// meanwhile.
func (t *tables) leave(s *clientSession, k *claim) error {
	if k.run != nil {
		return t.leaveRun(s, k)
	}
	if done, alone := t.undos.Alone(); alone {
		defer done()
		return t.leaveAlone(undo{s, k})
	}
	failed, err := t.undos.Do(t.tidying, undo{s, k})
	return cmp.Or(err, failed)
}

// leaveRun gives back what the member of a run has got: the lock goes to the next member, or with
// the last of them the whole run is released.
func (t *tables) leaveRun(s *clientSession, k *claim) error {
	passed, err := t.passOn(t.tidying, k)
	if passed || err != nil {
		return err
	}
	if !k.run.Releasing() {
		return t.leaveAlone(undo{s, k})
	}
	_, left, err := t.vacate(t.tidying, s, driver.Release(driver.Held{Name: k.name, Session: s.ID, Token: k.run.Range.Last}, true))
	switch {
	case err != nil:
		return err
	case !left:
		t.dropRun(s, k.run)
		return t.leaveAlone(undo{s, k})
	}
	t.releasedRun(k)
	return nil
}

// dropRun ends a run that the database has taken from its session. Break makes the members wait
// again, and those that had the lock before do not wait any more. MUST be called within a call.
func (t *tables) dropRun(s *clientSession, r *wait.Run) {
	for _, attempt := range r.End() {
		t.abandon(s, t.registry.known(r.Name, attempt), false)
	}
}

func (t *tables) leaveAlone(u undo) error {
	_, _, err := t.vacate(t.tidying, u.of, driver.Undo(u.of.ID, u.claim.name, u.claim.attempt))
	return err
}

// leaveTogether gives back many attempts, and returns what failed for each: first the places that
// wait in one queue; then, of what the database still has, the locks without waiters; the rest one
// by one.
func (t *tables) leaveTogether(all []undo) (failed []error, _ error) {
	failed = make([]error, len(all))
	type queue struct {
		of   *clientSession
		name string
	}
	queues := map[queue][]string{}
	for _, u := range all {
		q := queue{u.of, u.claim.name}
		queues[q] = append(queues[q], u.claim.attempt)
	}
	names := map[*clientSession][]string{}
	stuck := map[queue]error{} // what failed for a queue stops no other
	for q, attempts := range queues {
		if len(attempts) > 1 {
			if err := t.leaveQueue(q.of, q.name, attempts); err != nil {
				stuck[q] = err
				continue
			}
		}
		names[q.of] = append(names[q.of], q.name)
	}
	has := map[string]driver.Held{} // by attempt, what the database has of it; a place has no token
	for s, names := range names {
		states, err := t.lookAt(t.tidying, s.ID, names)
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			for _, attempt := range state.Queued {
				has[attempt] = driver.Held{Name: state.Name, Session: s.ID}
			}
			for _, own := range state.Granted {
				if own.Grant.Run.Last != 0 { // with its token others would lose the lock too
					has[own.Attempt] = driver.Held{Name: state.Name, Session: s.ID}
					continue
				}
				has[own.Attempt] = driver.Held{Name: state.Name, Session: s.ID, Token: own.Grant.Token, Shared: state.Sharing > 0}
			}
		}
	}
	var held []driver.Held
	var rest, of []int // indexes in all: of what is left, and of each in held
	for i, u := range all {
		failed[i] = stuck[queue{u.of, u.claim.name}]
		switch h, there := has[u.claim.attempt]; {
		case there && h.Token != 0:
			held, of = append(held, h), append(of, i)
		case there:
			rest = append(rest, i)
		}
	}
	for from := 0; from < len(held); from += maxExchange {
		part := held[from:min(from+maxExchange, len(held))]
		var released []bool
		err := t.statement(t.tidying, func(ctx context.Context) (err error) {
			_, released, err = t.engine.Batch(ctx, nil, part)
			return err
		})
		for i := range part {
			if err != nil || !released[i] {
				rest = append(rest, of[from+i])
			}
		}
	}
	for i, err := range parallel(len(rest), func(i int) error { return t.leaveAlone(all[rest[i]]) }) {
		failed[rest[i]] = err
	}
	return failed, nil
}

// leaveQueue gives up places in one queue.
func (t *tables) leaveQueue(s *clientSession, name string, attempts []string) error {
	asked := t.config.Clock.Now()
	var next []driver.Handoff
	err := t.statement(t.tidying, func(ctx context.Context) (err error) {
		next, err = t.engine.Leave(ctx, s.ID, name, attempts)
		return err
	})
	s.deliver(name, next, asked, err)
	return err
}

// undone waits for an attempt of this client's that is being undone, until ctx ends. False: it is
// none.
func (t *tables) undone(ctx context.Context, attempt string) bool {
	t.registry.mu.Lock()
	k := t.registry.claims[attempt]
	if k == nil || k.state != Undoing {
		t.registry.mu.Unlock()
		return false
	}
	done := k.undone
	t.registry.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
