package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	// again is after about what time a candidate comes back whom the database refused.
	again = 200 * time.Millisecond
	// refusal is within what a database refuses that accepts no writes. A Lock that took longer was
	// in the queue.
	refusal = time.Second
)

// Option configures a campaign.
type Option func(*config)

type config struct{ metadata map[string]string }

// Metadata is what a candidate carries, for those who observe: its address, say. At most 4096 bytes
// as JSON. Default: nothing.
func Metadata(kv map[string]string) Option { return func(c *config) { c.metadata = kv } }

// Campaign stands for election until ctx ends: it waits for its turn, runs fn as the leader, waits
// for fn to return, hands the lock to the next candidate, and stands again, at the end of the
// queue.
//
// The context of fn ends with the term: with cause dblock.ErrLost when the lock is lost, before
// anybody else can lead, with ErrResigned after Resign, and with ctx. It has the values of ctx, and
// under it the name of the election locks again at once, as under dblock.Lock.Context. fn should
// return soon after that; what it returns then counts only if ctx has ended. To return earlier is
// to resign: with nil the candidate stands again, with an error the campaign is over.
//
// Campaign returns nil when ctx has ended, all is handed on, and fn said no more than that its
// context had ended. Otherwise it returns fn's error; or why it cannot stand, which it says at once
// where that is so from the start: ErrSchema, ErrUnavailable, ErrReadOnly, ErrUnsupported on an
// engine without tables, ErrInvalidName, ErrInvalidOption; ErrClosed. Later it waits for a database
// that is away, or that accepts no writes. A panic of fn passes through it, after the lock was
// handed on.
//
// A client may campaign under several names, and several times under one: each campaign is a
// candidate of its own.
func (e *Elections[TX]) Campaign(ctx context.Context, name string, fn func(ctx context.Context, t *Term[TX]) error, options ...Option) error {
	c, err := e.prepare(ctx, name, fn == nil, options)
	stood := false // the database has taken it for a candidate: what is amiss later passes
	for err == nil && ctx.Err() == nil {
		asked := time.Now()
		var lock *dblock.Lock[TX]
		lock, err = e.client.Lock(stranger{ctx}, name, dblock.Metadata(c.metadata))
		stood = stood || err == nil || time.Since(asked) > refusal
		switch {
		case err == nil:
			err = e.lead(ctx, lock, fn)
		case ctx.Err() != nil:
			return nil
		case passes(err) && (stood || !errors.Is(err, dblock.ErrReadOnly)):
			err = nil
			pause(ctx, again)
		}
	}
	return err
}

// prepare refuses what cannot work.
func (e *Elections[TX]) prepare(ctx context.Context, name string, idle bool, options []Option) (c config, err error) {
	fail := func(what string) (config, error) {
		return c, &dblock.LockError{Op: "campaign", Name: name, Err: fmt.Errorf("%w: %s", dblock.ErrInvalidOption, what)}
	}
	switch {
	case ctx == nil:
		return fail("the context is nil")
	case idle:
		return fail("the function is nil")
	}
	for _, o := range options {
		if o == nil {
			return fail("a nil Option")
		}
		o(&c)
	}
	if _, err = e.client.Inspect(ctx, name); ctx.Err() != nil {
		err = nil
	}
	return c, err
}

// lead runs fn for one term. nil: stand again, if the context of the campaign has not ended.
func (e *Elections[TX]) lead(ctx context.Context, lock *dblock.Lock[TX], fn func(ctx context.Context, t *Term[TX]) error) (err error) {
	inner, end := context.WithCancelCause(lock.Context())
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	t := &Term[TX]{lock: lock, end: end, over: make(chan struct{})}
	within := tenure[TX]{inner, ctx, t}
	e.enter(t)
	defer func() {
		t.failure = t.handOn(ctx, e.client)
		e.leave(t)
		close(t.over)
		if t.failure != nil && (err != nil || ctx.Err() != nil) { // the last words
			err = errors.Join(err, t.failure)
		}
	}()
	if ctx.Err() != nil { // granted in the moment in which it ended
		return nil
	}
	if err := lock.Record(within, elected, ""); err != nil {
		if within.Err() != nil || passes(err) || errors.Is(err, dblock.ErrLost) {
			return nil
		}
		return err
	}
	err = fn(within, t)
	switch {
	case within.Err() == nil:
		return err
	case ctx.Err() == nil, errors.Is(err, within.Err()), errors.Is(err, context.Cause(within)):
		return nil
	}
	return err
}

// passes reports whether an error is one of a database that restarts, or fails over.
func passes(err error) bool {
	return errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrReadOnly)
}

// pause waits for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}
