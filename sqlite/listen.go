package sqlite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
)

var errNoBox = errors.New("the socket that others send their notices to was taken away")

// Listen hears grants made in this process from a bell, and those of other processes from a box. It
// also looks at their number in the database, as often as its lookout says: a notice may be lost,
// and there may be no box.
func (e *engine) Listen(ctx context.Context, session string, ready func(), wake func(driver.Hint)) error {
	if e.db.path() == "" { // not looked for yet, or in memory
		if _, err := e.sight(ctx, session); err != nil {
			return err
		}
	}
	open := func() (mailbox, error) { return openBox(e.db.path(), session) }
	return listen(ctx, session, open, e.sight, ready, wake)
}

// mailbox is what a listener needs of a box. It is an interface for tests in bubbles of
// testing/synctest, where time does not pass while a goroutine reads from a socket.
type mailbox interface {
	read(heard func(n notice))
	stands() bool
	close()
}

// listen is Listen, with any box and any way to look. The look runs beside it, because it may have
// to wait for a connection of a pool that is in use.
func listen(ctx context.Context, session string, open func() (mailbox, error), look func(context.Context, string) (sight, error), ready func(), wake func(driver.Hint)) error {
	b := hang(session)
	defer b.unhang(session)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	letters := make(chan notice)
	box, err := open()
	if err != nil {
		box = nil
	} else {
		defer box.close()
		running.Go(func() {
			box.read(func(n notice) {
				select {
				case letters <- n:
				case <-ctx.Done():
				}
			})
		})
	}
	first, err := look(ctx, session)
	if err != nil {
		return err
	}
	ready()

	l := newLookout(first, box != nil, time.Now())
	hear := func(n notice) {
		if n.attempt == "" {
			l.expect(n.nth, time.Now())
			return
		}
		l.rang(n.nth)
		wake(driver.Hint{Attempt: n.attempt})
	}
	looking, sights := false, make(chan sight, 1)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !looking {
			timer.Reset(time.Until(l.due()))
		}
		select {
		case <-b.rung:
			for _, n := range b.take() {
				hear(n)
			}
		case n := <-letters:
			l.opened(time.Now())
			hear(n)
		case <-b.queued:
			l.roused()
		case <-timer.C:
			if box != nil && !box.stands() {
				return errNoBox
			}
			l.looks()
			looking = true
			running.Go(func() {
				s, err := look(ctx, session)
				s.err = err
				sights <- s
			})
		case s := <-sights:
			if looking = false; s.err != nil {
				return s.err
			}
			if l.saw(s, time.Now()) {
				wake(driver.Hint{})
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sight is what a look has shown.
type sight struct {
	number  int64 // how many grants the session must have heard of, -1 where it is dead
	waiting bool  // for more, or for news of a name
	holding bool  // without waiting
	err     error
}

func (e *engine) sight(ctx context.Context, session string) (s sight, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		row, alive, err := found(q.Grants(ctx, session))
		if s.number, s.waiting = row.Grants, row.Waiting; !alive {
			s.number = -1
		}
		return err
	})
	if err == nil && !s.waiting {
		err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
			s.holding, err = q.Holding(ctx, session)
			return err
		})
	}
	return s, err
}
