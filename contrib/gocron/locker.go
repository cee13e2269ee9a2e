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

// ErrTaken means that the slot was run, by this process or another, or that a run of the job still
// continues.
var ErrTaken = errors.New("the slot is taken")

// minSlot is the shortest slot of package jobs.
const minSlot = 100 * time.Millisecond

// Locker gives a job to one of all schedulers that ask for it. It is a gocron.Locker, for
// gocron.WithDistributedLocker or, for one job, gocron.WithDistributedJobLocker. It is safe for
// concurrent use. Stop the schedulers before the client is closed.
type Locker struct {
	// hold takes the lock of a job, keeps it while during runs, and releases it. It returns the
	// error of during, joined with dblock.ErrLost if the lock was lost.
	hold func(ctx context.Context, name string, during func(l dblock.Handle) error) error

	mu   sync.Mutex // guards runs
	runs map[string]*run
}

var _ gocron.Locker = (*Locker)(nil)

// Every makes a Locker that lets each job run once in a slot of this length, over all processes, by
// OncePer of package jobs: slots are the database's time divided by their length. Choose the length
// of the job's interval. Runs of a job do not overlap: while one continues, no other begins, in any
// slot. A slot whose process dies counts as run, unless jobs.RetryFailed is given.
//
// slot is at least 100 ms. Every returns ErrInvalidOption for a shorter slot and a nil client.
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
	}), nil
}

// newRunLocker makes a Locker of a function that runs a job once in a slot.
func newRunLocker(
	once func(ctx context.Context, name string, during func(l dblock.Handle) error) (ran bool, err error),
) *Locker {
	return newLocker(func(ctx context.Context, name string, during func(l dblock.Handle) error) error {
		ran, err := once(ctx, name, during)
		if !ran && err == nil {
			return fmt.Errorf("dblock: %q: %w", name, ErrTaken)
		}
		return err
	})
}

// Hold makes a Locker that takes a plain lock with the job's name, and keeps it for at least
// minimum, however early the job has ended. Choose a little less than the job's interval. The lock
// of a job that takes longer than minimum is free at the job's end.
//
// minimum is more than 0, and at most 366 days. Hold returns ErrInvalidOption otherwise, and for a
// nil client.
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

// Lock takes the lock of a job without waiting. After an error gocron does not run the job, and
// gives the error to gocron.AfterLockError: ErrTaken or dblock.ErrNotAcquired if another scheduler
// has the job, and otherwise an error of dblock.Client.TryLock.
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

// leave forgets a run, unless the next one has begun because its lock was lost.
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
	outcome error         // the job's error, if the job was made by Task; written before end
	ended   chan struct{} // closed when the lock was released
	err     error         // of the run; read once ended is closed
}

// Unlock ends the run and waits until the lock is released, at most some seconds, also if ctx has
// ended. It returns the error of a job made by Task, joined with dblock.ErrLost if the lock was
// lost. gocron ignores that error.
func (r *run) Unlock(context.Context) error {
	r.locker.leave(r)
	r.end()
	<-r.ended
	return r.err
}

// ownerless is a context without values, so that a lock taken under it has no owner yet, also if
// the scheduler was made under the context of a lock.
type ownerless struct{ context.Context }

func (ownerless) Value(any) any { return nil }

func invalid(format string, args ...any) error {
	return fmt.Errorf("dblock: gocron: %w: %s", dblock.ErrInvalidOption, fmt.Sprintf(format, args...))
}
