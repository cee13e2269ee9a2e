package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/jobs"
)

// ErrTaken: the slot has been run, by this process or another, or a run of the job still goes on.
var ErrTaken = errors.New("the slot is taken")

// minSlot is the shortest slot of package jobs.
const minSlot = 100 * time.Millisecond

// Locker gives a job to one of all schedulers that ask for it. It is a gocron.Locker, for
// gocron.WithDistributedLocker or, for one job, gocron.WithDistributedJobLocker. It is safe for
// concurrent use. Stop the schedulers before the client is closed.
type Locker struct {
	// hold takes the lock of a job, keeps it while during runs, and gives it back. It returns what
	// during returned, joined with dblock.ErrLost where the lock was lost.
	hold func(ctx context.Context, name string, during func(l dblock.Handle) error) error

	mu   sync.Mutex // protects runs
	runs map[string]*run
}

var _ gocron.Locker = (*Locker)(nil)

// Every makes a Locker that lets each job run once in a slot of this length, over all processes, by
// OncePer of package jobs: slots are the database's time divided by their length. Choose the length
// of the job's interval. Runs of a job do not overlap: while one goes on, no other begins, in
// whatever slot. A slot whose process dies counts as run, unless jobs.RetryFailed is given.
//
// slot: at least 100 ms. ErrInvalidOption for a shorter one, a nil client and a nil option.
func Every[TX any](client *dblock.Client[TX], slot time.Duration, options ...jobs.Option) (*Locker, error) {
	switch {
	case client == nil:
		return nil, invalid("the client is nil")
	case slot < minSlot:
		return nil, invalid("a slot of %v: want at least %v", slot, minSlot)
	}
	return newRunLocker(func(ctx context.Context, name string, during func(l dblock.Handle) error) (bool, error) {
		return jobs.New(client).OncePer(ctx, name, slot, func(_ context.Context, l *dblock.Lock, _ time.Time) error {
			return during(l)
		}, options...)
	}, options)
}

// newRunLocker makes a Locker of what runs a job once in a slot.
func newRunLocker(
	once func(ctx context.Context, name string, during func(l dblock.Handle) error) (ran bool, err error),
	options []jobs.Option,
) (*Locker, error) {
	for _, o := range options {
		if o == nil {
			return nil, invalid("a nil Option")
		}
	}
	return newLocker(func(ctx context.Context, name string, during func(l dblock.Handle) error) error {
		ran, err := once(ctx, name, during)
		if !ran && err == nil {
			return fmt.Errorf("dblock: %q: %w", name, ErrTaken)
		}
		return err
	}), nil
}

// Hold makes a Locker that takes a plain lock, of the job's name, and keeps everybody from it for
// at least minimum, however early the job has ended. Choose a little less than the job's interval.
// A job that takes longer than minimum is as free as any lock at its end.
//
// minimum: more than 0, at most 366 days. ErrInvalidOption otherwise, and for a nil client.
func Hold(client dblock.Locker, minimum time.Duration) (*Locker, error) {
	const most = 366 * 24 * time.Hour
	switch {
	case client == nil:
		return nil, invalid("the client is nil")
	case minimum <= 0 || minimum > most:
		return nil, invalid("a minimum of %v: want more than 0, and at most %v", minimum, most)
	}
	return newLocker(func(ctx context.Context, name string, during func(l dblock.Handle) error) error {
		l, err := client.TryLock(ownerless{ctx}, name, dblock.MinHold(minimum))
		if err != nil {
			return err
		}
		err = during(l)
		return errors.Join(err, l.Unlock(ctx))
	}), nil
}

func newLocker(hold func(ctx context.Context, name string, during func(l dblock.Handle) error) error) *Locker {
	return &Locker{hold: hold, runs: map[string]*run{}}
}

// Lock takes the lock of a job without waiting. gocron does not run the job after an error, and
// gives it to gocron.AfterLockError: ErrTaken or dblock.ErrNotAcquired where another scheduler has
// the job, and otherwise as of dblock.Client.TryLock.
func (k *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	r := &run{locker: k, name: name, ended: make(chan struct{})}
	over, end := context.WithCancel(context.Background())
	r.end = end
	began := make(chan struct{})
	go func() {
		defer close(r.ended)
		defer end()
		r.err = k.hold(ctx, name, func(l dblock.Handle) error {
			r.lock = l
			k.enter(r)
			close(began)
			<-over.Done()
			return r.outcome
		})
	}()
	select {
	case <-began:
		return r, nil
	case <-r.ended:
		return nil, r.err
	}
}

func (k *Locker) enter(r *run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs[r.name] = r
}

// leave forgets a run, unless the next one has begun since: its lock was lost.
func (k *Locker) leave(r *run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs[r.name] == r {
		delete(k.runs, r.name)
	}
}

// running returns the run of a job in this process, or nil.
func (k *Locker) running(name string) *run {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[name]
}

// run is a run of a job, from Lock to Unlock.
type run struct {
	locker  *Locker
	name    string
	lock    dblock.Handle
	end     context.CancelFunc
	outcome error         // what the job returned, if it was made by Task; to be written before end
	ended   chan struct{} // closed when the lock was given back
	err     error         // of the run; to be read once ended is closed
}

// Unlock ends the run and waits until the lock is given back, which takes some seconds at most. It
// does so as well when ctx has ended. It returns the error of the job, if Task has made it, joined
// with dblock.ErrLost where the lock was lost. gocron does not look at it.
func (r *run) Unlock(context.Context) error {
	r.locker.leave(r)
	r.end()
	<-r.ended
	return r.err
}

// ownerless is a context without values: a lock that is taken under it is nobody's so far, also
// where the scheduler was made under the context of a lock.
type ownerless struct{ context.Context }

func (ownerless) Value(any) any { return nil }

func invalid(format string, args ...any) error {
	return fmt.Errorf("dblock: gocron: %w: %s", dblock.ErrInvalidOption, fmt.Sprintf(format, args...))
}
