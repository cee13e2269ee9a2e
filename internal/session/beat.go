package session

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/backoff"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
)

// heart sends a session's heartbeats. Its fields belong to the goroutine of beat. Other goroutines
// change them through post.
type heart struct {
	*Session
	interval time.Duration
	news     chan func()
	work     sync.WaitGroup     // the goroutines beside that of beat
	conns    map[*reserved]bool // at most maxConns

	connecting *connecting // nil: no connect is in flight
	overPool   bool        // a heartbeat over the pool is in flight
	due        time.Duration
	beats      int           // answered over reserved connections
	checked    bool          // Check asked for a reconciliation
	unlisted   int           // the number of reconciliations in a row that have failed
	relist     time.Duration // no reconciliation begins before this time
	few        bool          // the last list had no more than fewClaims entries
	listed     int64         // the calls of NoteUnknown before the last list of all claims
	cleared    int64         // those before the list before it
	settling   []chan struct{}
}

// maxConns limits the connections that are reserved at a time. The second one is needed only while
// the first one is late with an answer.
const maxConns = 2

// reserved is a reserved connection and its current task.
type reserved struct {
	up    driver.Upkeep
	does  task
	since time.Duration
	fresh bool // all claims have not been listed over it yet
	good  bool // it has answered before
}

type task int

const (
	nothing task = iota
	beating
	listing
)

// beat keeps the session alive until its context ends.
func (s *Session) beat() {
	h := &heart{
		Session: s, interval: s.config.TTL / beatsPerTTL, news: make(chan func()), conns: map[*reserved]bool{},
		due: s.config.Clock.Now() + s.config.TTL/beatsPerTTL, few: true,
	}
	defer h.stop()
	defer context.AfterFunc(s.engine.Lending(), s.Check)() // the heartbeat fails, and its connection is given back
	h.connect()
	due := s.config.Clock.NewTimer(s.config.TTL)
	defer due.Stop()
	for {
		due.Reset(h.due - s.config.Clock.Now())
		select {
		case <-s.ctx.Done():
			return
		case news := <-h.news:
			news()
		case <-s.check:
			h.checked = true
			h.beatNow()
		case settled := <-s.settle:
			h.checked, h.settling = true, append(h.settling, settled)
			h.beatNow()
		case <-due.C:
			h.beatNow()
		}
		h.settled()
	}
}

// settled ends the calls of Settle if nothing is in flight.
func (h *heart) settled() {
	busy := h.overPool
	for l := range h.conns {
		busy = busy || l.does != nothing
	}
	if busy {
		return
	}
	for _, settled := range h.settling {
		close(settled)
	}
	h.settling = nil
}

// stop waits for the other goroutines, which end with the session's context, and closes the
// connections.
func (h *heart) stop() {
	h.work.Wait()
	for l := range h.conns {
		_ = l.up.Close()
	}
}

// post runs f on the goroutine of beat. It returns false if the session has ended instead.
func (h *heart) post(f func()) bool {
	select {
	case h.news <- f:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// beatNow sends a heartbeat, over a reserved connection that is idle or else over the pool.
func (h *heart) beatNow() {
	h.due = h.config.Clock.Now() + h.interval
	late := true
	var idle *reserved
	for l := range h.conns {
		if l.does == nothing && (idle == nil || h.listensOn(l)) { // prefer the one on which the session listens
			idle = l
		}
		late = late && l.does == beating && h.config.Clock.Now()-l.since >= h.interval
	}
	if idle != nil {
		h.beatOver(idle)
		return
	}
	if late && len(h.conns) < maxConns { // the connection may be dead, or slow
		h.connect()
	}
	h.beatOverPool()
}

// beatSoon schedules a heartbeat after a failure, with jitter. It never postpones a heartbeat.
func (h *heart) beatSoon() {
	h.due = min(h.due, h.config.Clock.Now()+h.interval/4+mathrand.N(h.interval/4))
}

func (h *heart) beatOver(l *reserved) {
	l.does, l.since = beating, h.config.Clock.Now()
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, h.config.TTL)
		defer cancel()
		err := h.send(ctx, l.up.Heartbeat)
		h.post(func() { h.answered(l, err) })
	})
}

func (h *heart) beatOverPool() {
	if h.overPool {
		return
	}
	h.overPool = true
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, h.interval)
		defer cancel()
		err := h.send(ctx, h.engine.Beat)
		h.post(func() {
			h.overPool = false
			if err != nil {
				h.failed(h.config.Beating, err, "over", "the pool")
				h.beatSoon()
			}
		})
	})
}

// send sends one heartbeat, and reports its outcome.
func (s *Session) send(
	ctx context.Context, heartbeat func(ctx context.Context, session string, ttl time.Duration) (bool, error),
) error {
	sent := s.config.Clock.Now()
	err := s.sendAt(ctx, sent, heartbeat)
	s.mu.Lock()
	s.tried = max(s.tried, sent)
	s.mu.Unlock()
	if err == nil {
		s.config.Beating.Worked("session", s.ID)
	}
	if calledOff := s.ctx.Err() != nil && errors.Is(err, context.Canceled); !calledOff {
		s.config.Client.Beaten(s.config.Clock.Now()-sent, err)
	}
	return err
}

// sendAt sends one heartbeat. If the answer is that the session is dead, sendAt asks once more
// before it believes that. On success the lease counts from the moment before the first heartbeat
// was sent.
func (s *Session) sendAt(
	ctx context.Context, sent time.Duration,
	heartbeat func(ctx context.Context, session string, ttl time.Duration) (bool, error),
) error {
	alive, err := heartbeat(ctx, s.ID, s.config.TTL)
	if err == nil && !alive { // a server that has cut the statement short may answer so
		alive, err = heartbeat(ctx, s.ID, s.config.TTL)
	}
	misfit := new(driver.SchemaError)
	switch {
	case errors.As(err, &misfit), errors.Is(err, driver.ErrReplaced):
		s.end(err)
		return err
	case err != nil:
		return err
	case !alive:
		s.end(ErrKilled)
		return ErrKilled
	}
	s.extend(sent)
	return nil
}

// answered handles the result of a heartbeat over a reserved connection.
func (h *heart) answered(l *reserved, err error) {
	if !h.finished(l, err) {
		return
	}
	if h.config.Clock.Now()-l.since < h.interval { // no second connection is needed
		h.stopConnecting()
		h.listenOn(l)
		for other := range h.conns {
			if other != l && other.does == nothing {
				h.drop(other)
			}
		}
	}
	h.beats++
	h.Life.Touch()
	if h.config.Clock.Now() < h.relist {
		return
	}
	asked := h.checked || h.unknowns.Load() > h.cleared
	if asked || h.beats > 1 && (l.fresh || h.few && h.config.Client.Holding() || (h.beats-1)%claimsEvery == 0) {
		h.reconcile(l)
	}
}

// reconcile compares the claims of the session in the database with the client's holds.
func (h *heart) reconcile(l *reserved) {
	noted := h.unknowns.Load()
	all := l.fresh || noted > h.cleared
	l.does, h.checked = listing, false
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, h.config.TTL)
		defer cancel()
		few := true
		list := func(ctx context.Context, known []driver.Claim) ([]driver.Claim, error) {
			if all {
				known = nil
			}
			claims, err := l.up.Claims(ctx, h.ID, known)
			few = len(claims) <= fewClaims
			return claims, err
		}
		err := h.config.Client.Reconcile(ctx, h.Session, list)
		h.post(func() {
			if err == nil {
				h.unlisted, h.relist = 0, 0
				if all {
					l.fresh, h.listed, h.cleared = false, noted, h.listed
				}
			} else { // later heartbeats do not reset this count
				h.unlisted++
				h.relist, h.checked = h.config.Clock.Now()+backoff.Pause(h.unlisted, h.interval,
					maxPatience*h.config.TTL), true
			}
			if !h.finished(l, err) {
				return
			}
			if h.few = few; h.checked { // Check was called meanwhile
				h.beatNow()
			}
		})
	})
}

// finished ends the task of a connection. If the task failed, it drops the connection and returns
// false.
func (h *heart) finished(l *reserved, err error) bool {
	did := l.does
	l.does = nothing
	if err == nil {
		l.good = true
		return true
	}
	refused := false // the list was refused, and the connection is sound
	if did == listing {
		refused = !driver.InDoubt(err) && !errors.Is(err, driver.ErrUnavailable)
		err = fmt.Errorf("comparing the session's locks: %w", err)
	}
	if h.failed(h.config.Beating, err); refused {
		return false
	}
	if h.drop(l); len(h.conns) == 0 {
		if h.beatSoon(); l.good {
			h.connect() // else the next beatNow connects, so that a server that refuses heartbeats is not flooded
		}
	}
	return false
}

// drop closes an idle connection. If the session listened on it, it listens on another one.
func (h *heart) drop(l *reserved) {
	delete(h.conns, l)
	if h.listensOn(l) {
		var next *reserved
		for next = range h.conns {
		}
		h.listenOn(next)
	}
	h.work.Go(func() { _ = l.up.Close() })
}

// failed reports a failure, and the time that the session has left.
func (h *heart) failed(report *outage.Report, err error, more ...any) {
	if h.ctx.Err() == nil {
		left := (h.Deadline() - h.config.Clock.Now()).Round(time.Millisecond)
		report.Failed(err, append([]any{"session", h.ID, "left", left}, more...)...)
	}
}
