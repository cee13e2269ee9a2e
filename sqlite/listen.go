package sqlite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/protocol"
)

var errNoInbox = errors.New("the socket for the notices of other processes was removed")

// Listen hears of grants made in this process from a notifier, and of those of other processes from
// an inbox. It also reads their number from the database, as often as its pollSchedule says: a
// notice may be lost, and there may be no inbox.
func (u upkeep) Listen(ctx context.Context, session string, ready func(), wake func(protocol.Hint)) error {
	e := u.e
	if e.db.path() == "" { // not opened yet, or in memory
		if _, err := e.sight(ctx, session); err != nil {
			return err
		}
	}
	open := func() (receiver, error) { return openInbox(e.db.path(), session) }
	return listen(ctx, session, open, e.sight, ready, wake)
}

// receiver is the part of an inbox that a listener uses. It is an interface for tests in bubbles of
// testing/synctest, where time does not pass while a goroutine reads from a socket.
type receiver interface {
	read(heard func(n notice))
	stands() bool
	close()
}

// listen is Listen with any inbox and any function that looks.
func listen(
	ctx context.Context, session string, open func() (receiver, error),
	look func(context.Context, string) (sighting, error), ready func(), wake func(protocol.Hint),
) error {
	b := addNotifier(session)
	defer b.remove(session)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	letters := make(chan notice)
	l := &listener{notifier: b, tell: wake, open: func() (receiver, error) {
		inbox, err := open()
		if err == nil {
			running.Go(func() {
				inbox.read(func(n notice) {
					select {
					case letters <- n:
					case <-ctx.Done():
					}
				})
			})
		}
		return inbox, err
	}}
	l.receive(time.Now())
	defer func() {
		if l.inbox != nil {
			l.inbox.close()
		}
	}()
	first, err := look(ctx, session)
	if err != nil {
		return err
	}
	ready()
	l.schedule = newPollSchedule(first, l.inbox != nil, time.Now())
	return l.hearAll(ctx, letters, func(found chan<- sighting) {
		running.Go(func() {
			s, err := look(ctx, session)
			s.err = err
			found <- s
		})
	})
}

// listener joins the sources of notices with the receiver of hints.
type listener struct {
	*notifier
	open     func() (receiver, error) // opens an inbox, and reads from it
	inbox    receiver                 // nil: there is none
	pause    time.Duration            // the pause after the latest attempt to open an inbox
	again    time.Time                // the time of the next attempt
	schedule *pollSchedule
	tell     func(protocol.Hint)
}

// openMin and openMax bound the pause before an inbox that could not be opened is tried again.
const openMin, openMax = 5 * time.Second, 5 * time.Minute

// receive opens an inbox if there is none. The obstacle may have passed: too many open files, or a
// folder that another user made.
func (l *listener) receive(now time.Time) {
	if l.inbox != nil || now.Before(l.again) {
		return
	}
	inbox, err := l.open()
	if err == nil {
		l.inbox = inbox
		return
	}
	l.pause = min(max(2*l.pause, openMin), openMax)
	l.again = now.Add(l.pause)
}

// hearAll reports all notices, and the grants that a look finds without a notice. The look runs in
// a goroutine, because it may wait for a connection of a busy pool.
func (l *listener) hearAll(ctx context.Context, letters <-chan notice, look func(chan<- sighting)) error {
	looking, found := false, make(chan sighting, 1)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !looking {
			timer.Reset(time.Until(l.schedule.due()))
		}
		select {
		case <-l.notified:
			for _, n := range l.take() {
				l.hear(n)
			}
		case n := <-letters:
			l.schedule.opened(time.Now())
			l.hear(n)
		case <-l.waits:
			l.schedule.woken()
		case <-timer.C:
			if l.inbox != nil && !l.inbox.stands() {
				return errNoInbox
			}
			l.receive(time.Now()) // before the look, which finds grants that were sent to no inbox
			l.schedule.inbox = l.inbox != nil
			l.schedule.looks()
			looking = true
			look(found)
		case s := <-found:
			if looking = false; s.err != nil {
				return s.err
			}
			if l.schedule.saw(s, time.Now()) {
				l.tell(protocol.Hint{})
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *listener) hear(n notice) {
	if n.attempt == "" {
		l.schedule.expect(n.nth, time.Now())
		return
	}
	l.schedule.notify(n.nth)
	l.tell(protocol.Hint{Attempt: n.attempt})
}

// sighting is the result of a look.
type sighting struct {
	number  int64 // the grants that the session must have heard of; -1: the session is dead
	waiting bool  // the session waits for a grant, or for news of a name
	holding bool  // the session holds a lock and does not wait
	err     error
}

func (e *engine) sight(ctx context.Context, session string) (s sighting, err error) {
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
