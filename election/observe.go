package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
)

const (
	// minReread and maxReread bound the pause before the history is read again for the missing term
	// of the present holder.
	minReread, maxReread = 20 * time.Millisecond, time.Second
)

// Leader is the leader of a present or past term.
type Leader struct {
	Host, Thread string    // of the lock's holder
	Since        time.Time // when it was elected, by the database's clock
	Token        int64     // 0: there is no leader
	Metadata     map[string]string
}

// errEnough says that the observer wants no more values.
var errEnough = errors.New("enough")

// Observe yields the present leader, and then every change, in order, until ctx ends. The last
// value has the error of ctx. The zero Leader means that there is no leader. It may or may not come
// between two leaders, depending on the length of the gap and on when the database was read. All
// observers see the same leaders.
//
// A new leader and a resignation are yielded when they are recorded, where the engine can notify
// (see Watch of package inspect), and a crash when the lock ends. An observation survives outages
// of the database, and yields the changes of that time afterwards. It fails at once only if it
// cannot begin: ErrSchema, ErrUnavailable, ErrInvalidName.
func (e *Elections) Observe(ctx context.Context, name string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if ctx == nil {
			yield(Leader{}, fail("observe", name, fmt.Errorf("%w: the context is nil", dblock.ErrInvalidOption)))
			return
		}
		o := observer{inspector: e.inspector, name: name, yield: func(l Leader) bool { return yield(l, nil) }}
		if err := o.run(ctx); err != errEnough {
			yield(Leader{}, fail("observe", name, err))
		}
	}
}

// observer is one observation.
type observer struct {
	inspector *inspect.Inspector
	name      string
	yield     func(Leader) bool

	begun   bool   // the first value was yielded
	present Leader // as far as it was read
	latest  int64  // the token of the latest term, which may have ended
	after   int64  // the id of the last event that was read
}

// update is a value of Watch.
type update struct {
	info inspect.Info
	err  error
}

func (o *observer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	updates := make(chan update)
	watching.Go(func() {
		for info, err := range o.inspector.Watch(ctx, o.name) {
			select {
			case updates <- update{info, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	var info inspect.Info
	var reread <-chan time.Time
	for wait := minReread; ; {
		select {
		case s := <-updates:
			if s.err != nil {
				return s.err
			}
			info, wait = s.info, minReread
		case <-reread:
			if wait < maxReread {
				if wait = min(2*wait, maxReread); wait == maxReread {
					o.after = 0 // after a loss of the latest commits, new events may have the ids of lost ones
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := o.catchUp(ctx, &info); err != nil {
			return err
		}
		// A holder without a term is about to begin one, or is no candidate.
		if reread = nil; holder(info) > o.latest {
			reread = time.After(wait)
		}
	}
}

// catchUp yields the changes up to info, or since. It needs both the history and the lock: the
// history does not say whether the latest term goes on, and the lock does not show earlier terms.
func (o *observer) catchUp(ctx context.Context, info *inspect.Info) error {
	if err := o.retry(ctx, func() error { return o.read(ctx) }); err != nil {
		return err
	}
	if o.present.Token != 0 && holder(*info) != o.present.Token {
		// info may be older than the term. A comparison of tokens does not show it: tokens that are
		// reserved for goroutines behind the leader are above its own. A read that begins now is
		// not older.
		err := o.retry(ctx, func() (err error) {
			*info, err = o.inspector.Lock(ctx, o.name)
			return err
		})
		if err != nil {
			return err
		}
	}
	if o.present.Token != 0 && holder(*info) != o.present.Token {
		if err := o.setLeader(Leader{}); err != nil {
			return err
		}
	}
	if !o.begun {
		o.begun = true
		if !o.yield(o.present) {
			return errEnough
		}
	}
	return nil
}

// read reads the new events of the history. A repeated statement may have written an event twice.
func (o *observer) read(ctx context.Context) error {
	terms := inspect.EventFilter{Name: o.name, Kinds: []string{elected, resigned}, After: o.after}
	for e, err := range o.inspector.Events(ctx, terms) {
		if err != nil {
			return err
		}
		o.after = e.ID
		switch {
		case e.Kind == elected && e.Token > o.latest:
			o.latest = e.Token
			err = o.setLeader(Leader{Host: e.Host, Thread: e.Thread, Since: e.At, Token: e.Token, Metadata: e.Metadata})
		case e.Kind == resigned && e.Token == o.present.Token:
			err = o.setLeader(Leader{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setLeader sets the present leader, and yields it unless the first value is still to come.
func (o *observer) setLeader(l Leader) error {
	o.present = l
	if o.begun && !o.yield(l) {
		return errEnough
	}
	return nil
}

// retry repeats f while it fails because the database is away, or until ctx ends.
func (o *observer) retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		switch {
		case err == nil, err == errEnough:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, dblock.ErrUnavailable) && !errors.Is(err, driver.ErrRetry) &&
			!errors.Is(err, driver.ErrBusy):
			return err
		}
		pause(ctx, retryPause)
	}
}

// holder returns the token of the holder of the whole name, or 0.
func holder(i inspect.Info) int64 {
	if len(i.Holders) == 1 && !i.Holders[0].Shared {
		return i.Holders[0].Token
	}
	return 0
}
