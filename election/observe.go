package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
)

const (
	// firstKnock and lastKnock bound the pause before the history is read again for the term of a
	// holder who is not in it.
	firstKnock, lastKnock = 20 * time.Millisecond, time.Second
)

// Leader is who leads, or led.
type Leader struct {
	Host, Thread string    // as of a lock's holder
	Since        time.Time // when it was elected, by the database's clock
	Token        int64     // 0: nobody leads
	Metadata     map[string]string
}

// errEnough: whoever observes wants no more.
var errEnough = errors.New("enough")

// Observe yields who leads, at first as it is, and then every change, in order, until ctx ends:
// that is the error of the last. The zero Leader: nobody leads. Between two leaders it may come or
// not, depending on how long there was none and on when it was looked at; all observers see the
// same leaders.
//
// A new leader and a resignation are told of when they are recorded, where the engine can (see
// dblock.Client.Watch), a crash when the lock ends. Outages of the database are survived, and what
// happened meanwhile is yielded afterwards; only what the observation cannot begin with is an error
// at once: ErrSchema, ErrUnavailable, ErrUnsupported on an engine without tables, ErrInvalidName.
func (e *Elections[TX]) Observe(ctx context.Context, name string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if ctx == nil {
			yield(Leader{}, failed(name, fmt.Errorf("%w: the context is nil", dblock.ErrInvalidOption)))
			return
		}
		o := observer[TX]{client: e.client, name: name, tell: func(l Leader) bool { return yield(l, nil) }}
		if err := o.run(ctx); err != errEnough {
			yield(Leader{}, err)
		}
	}
}

func failed(name string, err error) error {
	return &dblock.LockError{Op: "observe", Name: name, Err: err}
}

// observer is one observation.
type observer[TX any] struct {
	client *dblock.Client[TX]
	name   string
	tell   func(Leader) bool

	begun   bool   // the first value was told
	present Leader // as far as it is known
	latest  int64  // the token of the latest term; it may be over
	after   int64  // the event that was read last
}

// sight is what Watch yields.
type sight struct {
	info dblock.Info
	err  error
}

func (o *observer[TX]) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	sights := make(chan sight)
	watching.Go(func() {
		for info, err := range o.client.Watch(ctx, o.name) {
			select {
			case sights <- sight{info, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	var info dblock.Info
	var knock <-chan time.Time
	for wait := firstKnock; ; {
		select {
		case s := <-sights:
			if s.err != nil {
				return s.err
			}
			info, wait = s.info, firstKnock
		case <-knock:
			if wait < lastKnock {
				if wait = min(2*wait, lastKnock); wait == lastKnock {
					o.after = 0 // a database that lost its latest commits may count events from an earlier number on
				}
			}
		case <-ctx.Done():
			return failed(o.name, ctx.Err())
		}
		if err := o.settle(ctx, &info); err != nil {
			return err
		}
		// Who has the lock and no term is about to begin one, or is no candidate.
		if knock = nil; holder(info) > o.latest {
			knock = time.After(wait)
		}
	}
}

// settle tells what has happened until the lock was as in info, or since. Of the history it cannot
// be told whether the latest term goes on, of the lock not what was before.
func (o *observer[TX]) settle(ctx context.Context, info *dblock.Info) error {
	if err := o.insist(ctx, func() error { return o.read(ctx) }); err != nil {
		return err
	}
	if o.present.Token != 0 && holder(*info) != o.present.Token && info.Token < o.present.Token {
		// Older than the term, or the name was idle for so long that its row was deleted.
		err := o.insist(ctx, func() (err error) {
			*info, err = o.client.Inspect(ctx, o.name)
			return err
		})
		if err != nil {
			return err
		}
	}
	if o.present.Token != 0 && holder(*info) != o.present.Token {
		if err := o.become(Leader{}); err != nil {
			return err
		}
	}
	if !o.begun {
		o.begun = true
		if !o.tell(o.present) {
			return errEnough
		}
	}
	return nil
}

// read goes through what is new in the history. A statement that was repeated may have written an
// event twice.
func (o *observer[TX]) read(ctx context.Context) error {
	events := o.client.Events(ctx, dblock.EventFilter{Name: o.name, Kinds: []string{elected, resigned}, After: o.after})
	for e, err := range events {
		if err != nil {
			return err
		}
		o.after = e.ID
		switch {
		case e.Kind == elected && e.Token > o.latest:
			o.latest = e.Token
			err = o.become(Leader{Host: e.Host, Thread: e.Thread, Since: e.At, Token: e.Token, Metadata: e.Metadata})
		case e.Kind == resigned && e.Token == o.present.Token:
			err = o.become(Leader{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// become notes who leads, and tells it, unless that is what was before the first value.
func (o *observer[TX]) become(l Leader) error {
	o.present = l
	if o.begun && !o.tell(l) {
		return errEnough
	}
	return nil
}

// insist repeats what failed because the database is away, until ctx ends.
func (o *observer[TX]) insist(ctx context.Context, f func() error) error {
	for {
		err := f()
		switch {
		case err == nil, err == errEnough:
			return err
		case ctx.Err() != nil:
			return failed(o.name, ctx.Err())
		case !errors.Is(err, dblock.ErrUnavailable) && !errors.Is(err, driver.ErrRetry) && !errors.Is(err, driver.ErrBusy):
			return err
		}
		pause(ctx, again)
	}
}

// holder is the token of who has all of a name; 0: nobody has.
func holder(i dblock.Info) int64 {
	if len(i.Holders) == 1 && !i.Holders[0].Shared {
		return i.Holders[0].Token
	}
	return 0
}
