package cohort

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/wait"
)

// A request lingers for at most lingerWhileHeld while a cohort of its session has the lock, and for
// lingerAfterRelease after that: the member that has released the lock often requests it again.
const (
	lingerWhileHeld    = 5 * time.Millisecond
	lingerAfterRelease = 200 * time.Microsecond
)

// Config has the parts of the client that cohorts use.
type Config struct {
	Clock clock.Clock
	// Calls ends the waiting when Background ends. Tidying bounds the statements for several
	// requests, which no single caller's context ends.
	Calls *store.Calls
	// Register is called before an attempt is sent, and Finish when nothing of it is in the
	// database. The attempt of a request is registered before Join. Passing is called before the
	// lock of an attempt is passed on.
	Register func(name, attempt string)
	Passing  func(attempt string)
	Finish   func(attempt string)
	// Abandon releases, in the background, the place or the lock of an attempt.
	Abandon func(in Session, name, attempt string, left store.Residue)
	// Deadlocked makes the error of a request that must give up.
	Deadlocked func(deadlock.Cycle) error
	// GaveUp makes the error of a request whose context ended.
	GaveUp func(in Session, name string, queued bool, cause error) error
}

// Session is the part of a session that cohorts use.
type Session interface {
	Context() context.Context
	Waiters() *wait.Hub
	Cycles() *deadlock.Detector
	Join(ctx context.Context, r *protocol.Request) (store.Answer, error)
}

// Queues has the waiting requests of a client.
type Queues struct {
	config     Config
	waiting    atomic.Int64 // members that are in a queue, or gather
	candidates atomic.Int64 // likewise, of elections

	mu        sync.Mutex      // protects the fields below, and every cohort and member
	gathering map[key]*cohort // the cohort that is sent next; a key with nil: a statement is in flight
	serving   map[key]*cohort // the open cohort that has the lock
}

// key is a name in a session.
type key struct {
	in   Session
	name string
}

// New makes the queues of a client.
func New(config Config) *Queues {
	return &Queues{config: config, gathering: map[key]*cohort{}, serving: map[key]*cohort{}}
}

// Busy reports whether an open cohort has a name, or requests it.
func (q *Queues) Busy(in Session, name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, asking := q.gathering[key{in, name}]
	return asking || q.serving[key{in, name}] != nil
}

// Waiting returns the number of requests that wait in a queue, or are about to join one together,
// and the number of candidates that wait.
func (q *Queues) Waiting() (others, candidates int) {
	return int(q.waiting.Load()), int(q.candidates.Load())
}

// Join queues a request, and returns the member when it has the lock. holding: the owner of the
// request may hold a lock that other owners wait for. If Join returns no member, it has finished or
// abandoned the attempt of the request.
func (q *Queues) Join(ctx context.Context, in Session, r *protocol.Request, holding bool) (*Member, error) {
	in.Waiters().Ready(ctx)
	m := &Member{request: *r, turn: make(chan error, 1)}
	var cycles <-chan deadlock.Cycle
	if plain(r, holding) {
		if q.gather(in, m) {
			q.config.Calls.Go(func() { q.sendGathered(in, r.Name) })
		}
	} else {
		c := &cohort{key: key{in, r.Name}, queues: q, attempt: r.Attempt, waiting: []*Member{m}, state: joining}
		c.number()
		q.send(ctx, c, c.request())
		select {
		case err := <-m.turn:
			return m.told(err)
		default:
		}
		watch := in.Cycles().Watch(r.Name, r.Attempt)
		defer in.Cycles().Forget(watch)
		cycles = watch.C
	}
	waiting := &q.waiting
	if r.Candidate {
		waiting = &q.candidates
	}
	waiting.Add(1)
	defer waiting.Add(-1)
	var err error
	select {
	case err := <-m.turn:
		return m.told(err)
	case <-in.Context().Done():
		err = store.ErrSessionOver
	case cycle := <-cycles:
		err = q.config.Deadlocked(cycle)
	case <-q.config.Calls.Background.Done():
		err = contract.ErrClosed
	case <-ctx.Done():
		err = q.config.GaveUp(in, r.Name, q.queued(m), context.Cause(ctx))
	}
	q.giveUp(m)
	return nil, err
}

// told returns the result of Join after the wait of a member.
func (m *Member) told(err error) (*Member, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// gather adds a plain request to those that are sent next. It returns true if no statement for the
// name is in flight: then the caller has to send it.
func (q *Queues) gather(in Session, m *Member) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := key{in, m.request.Name}
	c, busy := q.gathering[k]
	if c == nil {
		c = &cohort{key: k, queues: q, open: true}
		q.gathering[k] = c
	}
	m.cohort = c
	c.waiting = append(c.waiting, m)
	return !busy
}

// sendGathered sends the requests for a name until no more gather. It does not linger for requests
// that may come: of a name without others, the next request is sent at once.
func (q *Queues) sendGathered(in Session, name string) {
	for q.gathers(in, name) {
		q.linger(in, name)
		c, r := q.next(in, name)
		if c == nil {
			return
		}
		q.send(q.config.Calls.Tidying, c, r)
	}
}

// gathers reports whether requests for a name gather. If none do, the next one has to be sent by
// its caller.
func (q *Queues) gathers(in Session, name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := key{in, name}
	c := q.gathering[k]
	if c == nil {
		delete(q.gathering, k)
	}
	return c != nil
}

// linger delays the requests for a name while a cohort of their session has it. Members that
// release the lock usually request it again at once. The delay lets them join the queue as one
// place; without it each of them would queue alone.
func (q *Queues) linger(in Session, name string) {
	served := q.served(in, name)
	if served == nil {
		return
	}
	late := make(chan struct{})
	defer q.config.Clock.Alarm(q.config.Clock.Now()+lingerWhileHeld, func() { close(late) })()
	for ; served != nil; served = q.served(in, name) {
		select {
		case <-served:
			time.Sleep(lingerAfterRelease)
		case <-late:
			return
		case <-in.Context().Done():
			return
		case <-q.config.Calls.Background.Done():
			return
		}
	}
}

// served returns a channel that is closed when the open cohort that has a name has it no more;
// nil: no cohort has it.
func (q *Queues) served(in Session, name string) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.serving[key{in, name}]; c != nil {
		return c.served
	}
	return nil
}

// next ends the gathering of a cohort, and returns it with the request that is sent for it; nil:
// there is none. The attempt of the cohort is that of its first member.
func (q *Queues) next(in Session, name string) (*cohort, protocol.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := key{in, name}
	c := q.gathering[k]
	if c == nil || len(c.waiting) == 0 {
		delete(q.gathering, k)
		return nil, protocol.Request{}
	}
	q.gathering[k] = nil
	if len(c.waiting) > maxMembers {
		more := &cohort{key: k, queues: q, open: true, waiting: slices.Clone(c.waiting[maxMembers:])}
		more.number()
		q.gathering[k] = more
		c.waiting = c.waiting[:maxMembers]
	}
	c.number()
	c.attempt = c.waiting[0].request.Attempt
	for _, m := range c.waiting[1:] {
		q.config.Finish(m.request.Attempt)
	}
	c.move(send)
	return c, c.request()
}

// send sends the request of a cohort.
func (q *Queues) send(ctx context.Context, c *cohort, r protocol.Request) {
	c.place = c.in.Waiters().Add(c.name, c.attempt, c.answered)
	answer, err := c.in.Join(ctx, &r)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case store.Refusal(err): // the first member's own request, which the others have shared
		if len(c.waiting) > 0 && c.waiting[0].at == 0 {
			c.waiting[0].turn <- err
			c.waiting = c.waiting[1:]
		}
		c.fail(store.ErrAgain, store.Nothing)
	case err != nil:
		c.fail(err, answer.Left)
	case answer.Outcome == protocol.Queued:
		c.joined(r.Lease != 0)
	default:
		c.in.Waiters().Remove(c.place)
		if !c.begin(answer.Grant, answer.Asked) {
			c.vacate()
		}
	}
}

// answered ends the wait of a place. A grant that comes when no member waits changes nothing: the
// statement that sends or resumes the cohort then ends the cohort, and its lock is released.
func (c *cohort) answered(r wait.Result) {
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	if r.Granted {
		c.begin(r.Grant, r.Asked)
	} else {
		c.fail(store.ErrPlaceGone, store.Nothing)
	}
}

// queued reports whether a member has a place in the queue.
func (q *Queues) queued(m *Member) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := m.cohort.state
	return s >= queued && s != ended
}

// giveUp removes a member whose caller stopped waiting. If the member was granted the lock in the
// meantime, the lock goes to the next member, or is released.
func (q *Queues) giveUp(m *Member) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := m.cohort
	switch {
	case c.remove(m) && c.state == gathering:
		q.config.Finish(m.request.Attempt)
	case len(c.waiting) == 0 && c.state == queued:
		c.vacate()
	case c.present == m: // the member was granted the lock while it gave up
		if !c.pass(func(string) {}) {
			c.leave()
			c.abandon(store.Something)
		}
	}
}
