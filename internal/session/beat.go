package session

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// heart sends a session's heartbeats. Its fields belong to the goroutine of beat; what runs beside
// it posts its news.
type heart struct {
	*Session
	interval time.Duration
	news     chan func()
	work     sync.WaitGroup // all that runs beside
	lines    map[*line]bool // at most maxLines

	connecting *connecting // nil: nobody connects
	overPool   bool        // a heartbeat over the pool is not answered
	due        time.Duration
	beats      int  // answered over reserved connections
	checked    bool // somebody wants a comparison now
	few        bool // the session had no more than fewClaims when it last looked
}

// maxLines is how many connections are reserved at a time: the second one for as long as the first
// is late with an answer.
const maxLines = 2

// line is a reserved connection, and what it does.
type line struct {
	up    driver.Upkeep
	does  task
	since time.Duration
	fresh bool // nothing was compared over it yet
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
		Session: s, interval: s.config.TTL / beatsPerTTL, news: make(chan func()), lines: map[*line]bool{},
		due: s.config.Clock() + s.config.TTL/beatsPerTTL, few: true,
	}
	defer h.stop()
	h.connect()
	for {
		select {
		case <-s.ctx.Done():
			return
		case news := <-h.news:
			news()
		case <-s.check:
			h.checked = true
			h.pulse()
		case <-time.After(h.due - s.config.Clock()):
			h.pulse()
		}
	}
}

// stop runs after the session's context has ended, which cuts off all that runs beside.
func (h *heart) stop() {
	h.work.Wait()
	for l := range h.lines {
		_ = l.up.Close()
	}
}

// post has the goroutine of beat run f. It reports false where the session has ended instead.
func (h *heart) post(f func()) bool {
	select {
	case h.news <- f:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// pulse sends a heartbeat, over whatever is there.
func (h *heart) pulse() {
	h.due = h.config.Clock() + h.interval
	late := true
	for l := range h.lines {
		if l.does == nothing {
			h.beatOver(l)
			return
		}
		late = late && l.does == beating
	}
	if late && len(h.lines) < maxLines { // it may be dead, or slow
		h.connect()
	}
	h.beatOverPool()
}

// soon makes a heartbeat due after a failure, at a moment that differs from client to client.
func (h *heart) soon() {
	h.due = h.config.Clock() + h.interval/4 + mathrand.N(h.interval/4)
}

func (h *heart) beatOver(l *line) {
	l.does, l.since = beating, h.config.Clock()
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
		err := h.send(ctx, h.store.Beat)
		h.post(func() {
			h.overPool = false
			if err != nil {
				h.warn("heartbeat over the pool failed", err)
				h.soon()
			}
		})
	})
}

// send sends one heartbeat. What it proves holds from the moment before it was sent.
func (s *Session) send(ctx context.Context, heartbeat func(ctx context.Context, session string, ttl time.Duration) (bool, error)) error {
	sent := s.config.Clock()
	alive, err := heartbeat(ctx, s.ID, s.config.TTL)
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

// answered is what follows a heartbeat over a reserved connection.
func (h *heart) answered(l *line, err error) {
	if !h.finished(l, "heartbeat failed", err) {
		return
	}
	if h.config.Clock()-l.since < h.interval { // another one is not needed
		h.stopConnecting()
		for other := range h.lines {
			if other != l && other.does == nothing {
				h.drop(other)
			}
		}
	}
	h.beats++
	if h.beats > 1 && (l.fresh || h.checked || h.few && h.config.Holding() || (h.beats-1)%claimsEvery == 0) {
		h.list(l)
	}
}

// list compares what the session has in the database with what the client believes.
func (h *heart) list(l *line) {
	l.does, l.fresh, h.checked = listing, false, false
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, h.config.TTL)
		defer cancel()
		few := true
		err := h.config.Reconcile(ctx, h.Session, func(ctx context.Context) ([]driver.Claim, error) {
			claims, err := l.up.Claims(ctx, h.ID)
			few = len(claims) <= fewClaims
			return claims, err
		})
		h.post(func() {
			if !h.finished(l, "comparing the session's locks failed", err) {
				return
			}
			if h.few = few; h.checked { // somebody asked meanwhile
				h.pulse()
			}
		})
	})
}

// finished ends the task of a line. It reports false where the task failed: then the line is given
// up.
func (h *heart) finished(l *line, what string, err error) bool {
	l.does = nothing
	if err == nil {
		l.good = true
		return true
	}
	h.warn(what, err)
	if h.drop(l); len(h.lines) == 0 {
		if h.soon(); l.good {
			h.connect() // else the next pulse does: a server that refuses heartbeats is not asked all the time
		}
	}
	return false
}

// drop closes a line that does nothing.
func (h *heart) drop(l *line) {
	delete(h.lines, l)
	h.work.Go(func() { _ = l.up.Close() })
}

// warn tells of a failure that the session survives so far, and of how long it can go on.
func (h *heart) warn(what string, err error, more ...any) {
	if h.ctx.Err() == nil {
		left := (h.Deadline() - h.config.Clock()).Round(time.Millisecond)
		h.config.Log.Warn("dblock: "+what, append([]any{"session", h.ID, "left", left, "error", err}, more...)...)
	}
}
