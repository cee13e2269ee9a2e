package sqlite

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
)

// A listener looks for grants from other processes every lookInterval while its session waits for
// anything, and sooner when it has just found one: a lock that goes to and fro does so at a higher
// rate. A session with no place in any queue can be granted nothing: its locks can only be lost to
// an owner that re-enters, or be asked for. Then the listener pauses longer, and less long where
// the session holds something. A name that it watches counts as one that it waits for.
const (
	lookInterval = 10 * time.Millisecond
	lookAgain    = time.Millisecond
	holdInterval = 100 * time.Millisecond
	restInterval = time.Second
)

// bells are the listeners of this process, by session. A session's id is its own whatever the pool
// or the file, so that two clients of one process find each other however each of them opened the
// database.
var bells = struct {
	sync.Mutex
	of map[string]map[*bell]bool
}{of: map[string]map[*bell]bool{}}

// bell is a listener that can be rung. Its owner takes what was rung: a caller of ring must not run
// code of the listener's client, which may take the same mutexes as the caller's.
type bell struct {
	rung   chan struct{}
	grants []grant // guarded by bells
	queued chan struct{}
}

// grant is one that a session must hear of: the nth.
type grant struct {
	attempt string
	nth     int64
}

func hang(session string) *bell {
	b := &bell{rung: make(chan struct{}, 1), queued: make(chan struct{}, 1)}
	bells.Lock()
	defer bells.Unlock()
	if bells.of[session] == nil {
		bells.of[session] = map[*bell]bool{}
	}
	bells.of[session][b] = true
	return b
}

func (b *bell) unhang(session string) {
	bells.Lock()
	defer bells.Unlock()
	delete(bells.of[session], b)
	if len(bells.of[session]) == 0 {
		delete(bells.of, session)
	}
}

func (b *bell) take() []grant {
	bells.Lock()
	defer bells.Unlock()
	grants := b.grants
	b.grants = nil
	return grants
}

// ring tells the listeners of a session in this process that an attempt was granted, or has lost
// its lock.
func ring(session, attempt string, nth int64) {
	bells.Lock()
	defer bells.Unlock()
	for b := range bells.of[session] {
		b.grants = append(b.grants, grant{attempt, nth})
		signal(b.rung)
	}
}

// rouse ends the rest of a session's listeners: it may wait for something now.
func rouse(session string) {
	bells.Lock()
	defer bells.Unlock()
	for b := range bells.of[session] {
		signal(b.queued)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Listen hears grants made in this process from a bell, and all others from looking at their number
// in the database. The two are apart because a look may have to wait for a connection of a pool
// that is in use.
func (e *engine) Listen(ctx context.Context, session string, ready func(), wake func(driver.Hint)) error {
	b := hang(session)
	defer b.unhang(session)
	number, _, err := e.grants(ctx, session)
	if err != nil {
		return err
	}
	ready()
	t := tally{heard: number}
	numbers, failed := make(chan int64), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel()
	looking.Go(func() { failed <- e.watch(ctx, session, number, numbers, b.queued) })
	for {
		select {
		case <-b.rung:
			for _, g := range b.take() {
				t.rang(g.nth)
				wake(driver.Hint{Attempt: g.attempt})
			}
		case number := <-numbers:
			if t.missed(number) {
				wake(driver.Hint{})
			}
		case err := <-failed:
			return err
		}
	}
}

// watch sends the number of grants whenever it is another than before, until ctx ends.
func (e *engine) watch(ctx context.Context, session string, before int64, numbers chan<- int64, queued <-chan struct{}) error {
	pause := lookInterval
	for {
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		number, waiting, err := e.grants(ctx, session)
		if err != nil {
			return err
		}
		pause = min(2*pause, lookInterval)
		if number != before {
			before, pause = number, lookAgain
			select {
			case numbers <- number:
			case <-ctx.Done():
				return ctx.Err()
			}
		} else if !waiting {
			rest, err := e.rest(ctx, session)
			if err != nil {
				return err
			}
			// A place taken after the look was read is roused for after its commit, and so after
			// this.
			resting, cancel := context.WithTimeout(ctx, rest)
			select {
			case <-queued:
			case <-resting.Done():
			}
			cancel()
		}
	}
}

// grants is how many grants the session must have heard of, -1 where it is dead, and whether it
// waits for more.
func (e *engine) grants(ctx context.Context, session string) (number int64, waiting bool, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		row, alive, err := found(q.Grants(ctx, session))
		if number, waiting = row.Grants, row.Waiting; !alive {
			number = -1
		}
		return err
	})
	return number, waiting, err
}

// rest is for how long the session can do without a look, while it waits for nothing.
func (e *engine) rest(ctx context.Context, session string) (pause time.Duration, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		holding, err := q.Holding(ctx, session)
		if pause = restInterval; holding {
			pause = holdInterval
		}
		return err
	})
	return pause, err
}

// tally tells which grants a bell has announced before they were seen in the database.
type tally struct {
	heard int64   // every grant up to this one
	rung  []int64 // and these
}

func (t *tally) rang(nth int64) {
	if nth > t.heard {
		t.rung = append(t.rung, nth)
	}
}

// missed reports whether some of the first number grants were not announced, and takes them all as
// heard.
func (t *tally) missed(number int64) bool {
	news := number - t.heard
	before := len(t.rung)
	t.rung = slices.DeleteFunc(t.rung, func(nth int64) bool { return nth <= number })
	t.heard = number
	return int64(before-len(t.rung)) != news
}
