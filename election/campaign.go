package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

const (
	// retryPause is the average pause before a candidate or observer retries after the database has
	// failed.
	retryPause = 200 * time.Millisecond
	// refusalTime is the time that a database which accepts no writes takes to refuse a Lock. A
	// Lock that took longer was in the queue.
	refusalTime = time.Second
)

// Option configures a campaign.
type Option func(*config)

type config struct {
	metadata map[string]string
	owner    *owner // nil: each campaign is an owner of its own
	weight   int
}

type owner struct{ host, thread string }

// Metadata sets the data that observers see of a candidate: its address, say. At most 4096 bytes as
// JSON, with the weight. The key "weight" is reserved. Default: none.
func Metadata(kv map[string]string) Option { return func(c *config) { c.metadata = kv } }

// Owner gives the candidate an identity that outlives its process, as dblock.Owner does: a leader
// that was restarted takes its own lock over at once, with a new token, instead of waiting for the
// TTL of its former process. Choose host and thread so that no two live processes have the same,
// and a restart does not change them (a pod's stable name, say). Two live candidates with one Owner
// take the lead from each other. Until the former one is notified, within a fifth of its TTL, both
// contexts are live. A client campaigns once at a time with one Owner under a name, and does not
// lock the name with it otherwise: ErrInvalidOption. Under several names use several Owners, since
// two candidates that lead under one name each, and wait for the other's, are a deadlock of two
// owners. Both parts: 1 to 255 bytes of UTF-8. Default: an owner of its own for each campaign.
func Owner(host, thread string) Option {
	return func(c *config) { c.owner = &owner{host, thread} }
}

// Campaign stands for election until ctx ends. It waits for its turn, runs fn as the leader, waits
// for fn to return, releases the lock to the next candidate, and stands again at the end of the
// queue.
//
// The context of fn ends with the term: with cause dblock.ErrLost when the lock is lost, before
// another candidate can lead; with ErrResigned after Resign; and with ctx. It has the values of
// ctx. Under it the name of the election can be locked again at once, as under dblock.Lock.Context.
// fn should return soon after the end of its context. The error that fn then returns counts only if
// ctx has ended. If fn returns earlier, it resigns: with nil the candidate stands again, with an
// error the campaign ends. After a term of up to a second the candidate pauses before it stands
// again: for 50 ms, and twice as long after each further one, up to 10 s.
//
// Campaign returns nil when ctx has ended, the lock is released, and fn returned nil or the error
// of its context. Otherwise it returns fn's error, or, as a *dblock.LockError of "campaign", the
// reason why it cannot stand: ErrSchema, ErrUnavailable, ErrReadOnly, ErrInvalidName,
// ErrInvalidOption, ErrClosed. It returns such a reason at once where it applies from the start.
// Later it waits for a database that is away, or that accepts no writes. A panic of fn passes
// through it, after the lock was released.
//
// A client may campaign under several names, and several times under one name. Each campaign is a
// candidate of its own.
func (e *Elections) Campaign(
	ctx context.Context, name string, fn func(ctx context.Context, t *Term) error, options ...Option,
) error {
	c, err := e.prepare(ctx, name, fn == nil, options)
	if err != nil {
		return err
	}
	return e.campaign(ctx, name, c, false, fn)
}

// campaign is Campaign with options that were prepared. stood reports that the database has
// accepted the candidate before: later failures are transient.
func (e *Elections) campaign(
	ctx context.Context, name string, c config, stood bool, fn func(ctx context.Context, t *Term) error,
) (err error) {
	if c.weight == 0 {
		<-ctx.Done()
		return nil
	}
	var brief brevity
	fn = brief.measured(fn)
	for err == nil && ctx.Err() == nil {
		asked := time.Now()
		var lock *dblock.Lock
		lock, err = e.stand(ctx, name, c)
		stood = stood || err == nil || time.Since(asked) > refusalTime
		switch {
		case err == nil:
			err = e.lead(ctx, lock, c.weight, fn)
		case ctx.Err() != nil:
			return nil
		case transient(err) && (stood || !errors.Is(err, dblock.ErrReadOnly)):
			err = nil
			pause(ctx, retryPause)
		}
		if err == nil {
			brief.rest(ctx)
		}
	}
	return err
}

// candidate marks the candidate's place in the queue.
var candidate = contract.Set(func(o *contract.Options) { o.Candidate = true })

// stand waits until the candidate holds the lock. It refuses an owner that held the lock before the
// call: that owner leads by another handle, and would lead twice.
func (e *Elections) stand(ctx context.Context, name string, c config) (*dblock.Lock, error) {
	options := []dblock.LockOption{dblock.Metadata(c.place()), candidate}
	if c.owner != nil {
		options = append(options, dblock.Owner(c.owner.host, c.owner.thread))
	}
	lock, err := e.lock(ownerless{ctx}, name, options...)
	if err != nil || !inside.Of(lock).Entered() {
		return lock, fail("campaign", name, err)
	}
	failure := fmt.Errorf("%w: its Owner holds the name already in this client", dblock.ErrInvalidOption)
	return nil, fail("campaign", name, driver.Join(failure, lock.Unlock(ctx)))
}

// prepare applies the options and returns the errors that can be found before the first Lock.
func (e *Elections) prepare(ctx context.Context, name string, idle bool, options []Option) (c config, err error) {
	refuse := func(what string) (config, error) {
		return c, fail("campaign", name, fmt.Errorf("%w: %s", dblock.ErrInvalidOption, what))
	}
	c.weight = defaultWeight
	switch {
	case ctx == nil:
		return refuse("the context is nil")
	case idle:
		return refuse("the function is nil")
	}
	for _, o := range options {
		if o == nil {
			return refuse("a nil Option")
		}
		o(&c)
	}
	if err := c.check(); err != nil {
		return refuse(err.Error())
	}
	if _, err = e.inspector.Lock(ctx, name); ctx.Err() != nil {
		err = nil
	}
	return c, fail("campaign", name, err)
}

// lead runs fn for one term. After nil the candidate stands again, unless the context of the
// campaign has ended.
func (e *Elections) lead(
	ctx context.Context, lock *dblock.Lock, weight int, fn func(ctx context.Context, t *Term) error,
) (err error) {
	inner, end := contract.UntilEither(lock.Context(), ctx)
	t := &Term{lock: lock, end: end, over: make(chan struct{}), heavier: make(chan struct{})}
	within := leaderContext{inner, ctx, t}
	t.look = func() { e.awaitHeavier(within, t, weight) }
	defer t.endLook()
	defer end(nil)
	e.enter(t)
	defer func() {
		t.failure = t.handOff(ctx, e.inspector)
		e.leave(t)
		close(t.over)
		if t.failure != nil && (err != nil || ctx.Err() != nil) { // no later term can report it
			err = driver.Join(err, fail("campaign", t.Name(), t.failure))
		}
	}()
	if ctx.Err() != nil { // the lock was granted when ctx ended
		return nil
	}
	// Each candidate before a heavier one yields once, because it then stands behind that one.
	switch info, err := e.inspector.Lock(within, lock.Name()); {
	case err == nil && outweighed(info, weight), within.Err() != nil, transient(err):
		return nil
	}
	switch err := lock.Record(within, elected, ""); {
	case err == nil:
	case within.Err() != nil, errors.Is(err, dblock.ErrLost), errors.Is(err, dblock.ErrReadOnly):
		return nil
	case !driver.InDoubt(err): // the history takes no event: the leadership does not depend on it
	case transient(err):
		return nil
	default:
		return fail("campaign", t.Name(), err)
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

// transient reports whether the error is that of a database that restarts or fails over.
func transient(err error) bool {
	return errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrReadOnly)
}

// pause waits for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}
