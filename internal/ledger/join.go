package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/wait"
)

// holdBackStep is the time after which holdBack looks whether the lock was passed on.
// holdBackRounds limits how often it looks.
const (
	holdBackStep   = time.Millisecond
	holdBackRounds = 10
)

// localQueue has the joint requests of a session for a name: one statement for them at a time is in
// flight, and the requests that come meanwhile go with the next.
type localQueue struct {
	asking    bool   // a goroutine sends them
	gathering *Grant // what is sent next; nil: nothing
	last      *Grant // the latest that was sent, while it has a place or the lock; nil: none
	serving   *Grant // the one that has the lock, or is about to be released; nil: none
}

// key is a name in a session.
type key struct {
	in   *store.Session
	name string
}

// localQueue returns the localQueue of a name, and makes it if there is none. clear MUST follow
// where the localQueue may be empty. MUST be called with mu locked.
func (l *Ledger) localQueue(in *store.Session, name string) *localQueue {
	k := key{in, name}
	if l.queues[k] == nil {
		l.queues[k] = &localQueue{}
	}
	return l.queues[k]
}

// clear forgets a localQueue that is empty. MUST be called with mu locked.
func (l *Ledger) clear(in *store.Session, name string) {
	if k := (key{in, name}); *l.queues[k] == (localQueue{}) {
		delete(l.queues, k)
	}
}

// Busy reports whether requests for a name gather, the latest joint grant has a place in its queue,
// or a joint grant has it.
func (l *Ledger) Busy(in *store.Session, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues[key{in, name}] != nil
}

// Waiting returns the number of requests that wait in a queue, or are about to join one together,
// and the number of candidates that wait.
func (l *Ledger) Waiting() (others, candidates int) {
	return int(l.waiting.Load()), int(l.candidates.Load())
}

// plain reports whether a request may share a grant with others: it wants the whole name without
// any option, and its owner holds nothing that other owners could wait for. A candidate has a place
// of its own, which is known by its attempt.
func plain(r *protocol.Request, holding bool) bool {
	return !holding && r.Units == 0 && r.Lease == 0 && r.MinHold == 0 && r.Metadata == "" && !r.Candidate
}

// Join queues a claim whose attempt has nothing in the database, and returns when its turn has
// come. holding: the owner of the claim may hold a lock that other owners wait for. After an error
// the attempt is finished or abandoned.
func (l *Ledger) Join(ctx context.Context, c *Claim, holding bool) error {
	in, began := c.Grant.In, l.config.Clock.Now()
	defer l.lookInTime(ctx, in, c.Request.Name, began)()
	in.Waiters().Ready(ctx)
	c.turn = make(chan error, 1)
	var cycles <-chan deadlock.Cycle
	if plain(&c.Request, holding) {
		l.gather(c)
	} else {
		c.Grant.number()
		l.send(ctx, c.Grant, c.Grant.request(), nil)
		select {
		case err := <-c.turn:
			if err != nil && ctx.Err() != nil {
				gaveUp := l.config.Client.GaveUp(in, c.Request.Name, false, began, context.Cause(ctx))
				if errors.Is(gaveUp, contract.ErrNotAcquired) {
					return gaveUp
				}
			}
			return err
		default:
		}
		watch := in.Cycles().Watch(c.Request.Name, c.Request.Attempt)
		defer in.Cycles().Forget(watch)
		cycles = watch.C
	}
	waiting := &l.waiting
	if c.Request.Candidate {
		waiting = &l.candidates
	}
	waiting.Add(1)
	defer waiting.Add(-1)
	var err error
	select {
	case err := <-c.turn:
		return err
	case <-in.Context().Done():
		err = store.ErrSessionOver
	case cycle := <-cycles:
		err = l.config.Client.Deadlocked(cycle)
	case <-l.config.Store.Background.Done():
		err = contract.ErrClosed
	case <-ctx.Done():
		err = l.config.Client.GaveUp(in, c.Request.Name, l.queued(c), began, context.Cause(ctx))
	}
	l.giveUp(c)
	return err
}

// lookInTime has the name read when half of the time of a request has passed, unless the session
// has read it since then. The error of a short wait names the holder then, also where the request
// has not got its place in the queue. stop MUST be called.
func (l *Ledger) lookInTime(
	ctx context.Context, in *store.Session, name string, began time.Duration,
) (stop func() bool) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return func() bool { return false }
	}
	return time.AfterFunc(time.Until(end)/2, func() {
		if _, read := in.Waiters().State(name); read < began {
			in.Waiters().Recheck(name)
		}
	}).Stop
}

// gather adds a claim to those that are sent next. Its own attempt ends where another one gathers.
func (l *Ledger) gather(c *Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := c.Grant
	on := l.localQueue(own.In, own.Name)
	if g := on.gathering; g == nil {
		own.joint, on.gathering = true, own
	} else {
		g.waiting = append(g.waiting, c)
		c.Grant, own.waiting = g, nil
		l.move(own, vanish)
	}
	if !on.asking {
		on.asking = true
		l.config.Store.Go(func() { l.sendGathered(own.In, own.Name) })
	}
}

// sendGathered sends the requests for a name until no more gather.
func (l *Ledger) sendGathered(in *store.Session, name string) {
	for l.gathers(in, name) {
		l.holdBack(in, name)
		if g, r, extends := l.next(in, name); g != nil {
			l.send(l.config.Store.Tidying, g, r, extends)
		}
	}
}

// holdBack delays the gathered requests while the claims of their session pass the lock on. Claims
// that release the lock usually request it again at once. The delay lets them join the queue as one
// place. It ends when one claim keeps the lock, since then nothing gathers: after less than two
// steps.
func (l *Ledger) holdBack(in *store.Session, name string) {
	var before *Claim
	for range holdBackRounds {
		g, c := l.serving(in, name)
		if g == nil || c != nil && c == before {
			return
		}
		before = c
		step := time.NewTimer(holdBackStep)
		select {
		case <-g.served:
			step.Stop()
		case <-step.C:
		}
	}
}

// serving returns the joint grant of a session that has a name, and the claim that has the lock;
// nil: the lock is being released.
func (l *Ledger) serving(in *store.Session, name string) (*Grant, *Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch q := l.queues[key{in, name}]; {
	case q == nil || q.serving == nil:
		return nil, nil
	case q.serving.state == Leaving:
		return q.serving, nil
	default:
		return q.serving, q.serving.present
	}
}

// serves notes the joint grant that has the lock; nil: none. MUST be called with mu locked.
func (q *localQueue) serves(g *Grant) {
	if q.serving != nil {
		close(q.serving.served)
	}
	q.serving = g
}

// gathers reports whether requests for a name gather. If none do, the next one has to be sent by
// its caller.
func (l *Ledger) gathers(in *store.Session, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	on := l.localQueue(in, name)
	on.asking = on.gathering != nil
	l.clear(in, name)
	return on.asking
}

// next ends the gathering of a grant, and returns it with its request, and with the grant whose
// place the request extends, if that is the last one in the queue; nil: there is none. The grant is
// nil if no claim is left.
func (l *Ledger) next(in *store.Session, name string) (g *Grant, r protocol.Request, extends *Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	on := l.localQueue(in, name)
	g, on.gathering = on.gathering, nil
	if len(g.waiting) == 0 {
		l.move(g, vanish)
		return nil, r, nil
	}
	if len(g.waiting) > protocol.MaxMembers {
		more := newGrant(in, name, deadlock.NewAttempt(""), slices.Clone(g.waiting[protocol.MaxMembers:])...)
		more.joint = true
		more.number()
		l.attempts[more.ID], on.gathering = more, more
		g.waiting = g.waiting[:protocol.MaxMembers]
	}
	// Members that gave up count as waiters in the database: of a place that grows most are there.
	if on.last != nil && on.last.state == Queued && 2*len(on.last.waiting) > on.last.members {
		extends = on.last
		extends.growing = make(chan struct{})
	}
	g.number()
	return g, g.request(), extends
}

// send sends the request of a grant, which may extend the place of another one.
func (l *Ledger) send(ctx context.Context, g *Grant, r protocol.Request, extends *Grant) {
	place, attempt := l.await(g), ""
	l.mu.Lock()
	if g.place = place; extends != nil {
		attempt = extends.ID
	}
	l.mu.Unlock()
	answer, err := g.In.Join(ctx, &r, attempt)
	l.mu.Lock()
	defer l.mu.Unlock()
	if extends != nil {
		close(extends.growing)
		extends.growing = nil
	}
	switch {
	case answer.Ahead > 0:
		l.extend(extends, g, answer.Ahead)
	case store.Refusal(err): // the first claim's own request, which the others have shared
		if len(g.waiting) > 0 && g.waiting[0].at == 0 {
			first := g.waiting[0]
			g.waiting = g.waiting[1:]
			l.happen(first, finish)
			first.turn <- err
		}
		l.fail(g, store.ErrAgain, store.Nothing, nil)
	case err != nil:
		l.fail(g, err, answer.Left, answer.Answered)
	case answer.Outcome == protocol.Queued:
		l.enqueue(g, r.Lease != 0)
	default:
		g.In.Waiters().Remove(g.place)
		if !l.allow(g, answer.Grant, answer.Asked) {
			l.vacate(g)
		}
	}
	if g.joint && (g.state == Queued || g.state == Granted) {
		l.localQueue(g.In, g.Name).last = g
	}
}

// extend adds the claims of a request to the grant whose place it has extended. They request the
// lock again if that grant has ended, if the lock is for a single claim by now, or if the place had
// fewer members than the client knows of: a crash of the server has undone an earlier request,
// whose claims have these tokens. MUST be called within a call, with mu locked.
func (l *Ledger) extend(g, by *Grant, ahead int) {
	if !g.whole() || ahead < g.members {
		l.fail(by, store.ErrAgain, store.Nothing, nil)
		return
	}
	by.In.Waiters().Remove(by.place)
	for _, c := range by.waiting {
		c.Grant, c.at = g, c.at+ahead
	}
	g.members, g.waiting, by.waiting = ahead+by.members, append(g.waiting, by.waiting...), nil
	if g.state == Granted {
		l.limit(g, g.Given)
	}
	l.move(by, vanish)
}

// await registers the place of a grant before its request is sent.
func (l *Ledger) await(g *Grant) *wait.Waiter {
	return g.In.Waiters().Add(g.Name, g.ID, func(r wait.Result) { l.answered(g, r) })
}

// answered ends the wait of a place. A grant that comes when no claim waits changes nothing where a
// statement sends or resumes the place: that then ends it, and its lock is released.
func (l *Ledger) answered(g *Grant, r wait.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Granted {
		if !l.allow(g, r.Grant, r.Asked) && g.state == Queued && l.config.Store.Begin() == nil {
			l.vacate(g)
			l.config.Store.Done()
		}
	} else {
		l.fail(g, store.ErrPlaceGone, store.Nothing, nil)
	}
}

// enqueue records that the database has a place for a grant. recheck: a fixed lease in front of the
// place may have expired, which is not notified, so that the name is read soon. MUST be called
// within a call, with mu locked.
func (l *Ledger) enqueue(g *Grant, recheck bool) {
	switch {
	case len(g.waiting) == 0:
		l.vacate(g)
	case g.can(queue):
		l.move(g, queue)
		g.In.Waiters().Queued(g.place)
		if recheck {
			g.In.Waiters().Recheck(g.Name)
		}
	}
}

// vacate gives up the place of a grant without claims. MUST be called within a call, with mu
// locked.
func (l *Ledger) vacate(g *Grant) {
	if g.state == Sent || g.state == Queued {
		g.In.Waiters().Remove(g.place)
		l.abandon(g, store.Something)
	}
}

// fail ends a grant without the lock, with the error for all of its claims. left is the residue of
// its statement, which is answered later where answered is not nil. MUST be called with mu locked,
// and within a call where something may be left.
func (l *Ledger) fail(g *Grant, err error, left store.Residue, answered <-chan struct{}) {
	if g.state != Sent && g.state != Queued {
		return
	}
	g.In.Waiters().Remove(g.place)
	l.dismiss(g, err)
	if left == store.Nothing {
		l.finish(g, true)
	} else {
		l.abandonAfter(g, left, answered)
	}
}

// queued reports whether a claim has a place in the queue, or its turn has come.
func (l *Ledger) queued(c *Claim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.Grant.state == Queued || c.Grant.state == Granted
}

// giveUp removes a claim whose caller stopped waiting. If its turn has come in the meantime, the
// lock goes to the next claim, or is released. MUST be called within a call.
func (l *Ledger) giveUp(c *Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch g := c.Grant; {
	case l.withdraw(c):
		if len(g.waiting) == 0 && g.state == Queued {
			l.vacate(g)
		}
	case g.present == c && g.mayGrow():
		l.config.Store.Go(func() {
			if passed, _ := l.Pass(l.config.Store.Tidying, c); !passed {
				l.Abandon(g, store.Something)
			}
		})
	case g.present == c && !l.pass(c):
		l.abandon(g, store.Something)
	}
}
