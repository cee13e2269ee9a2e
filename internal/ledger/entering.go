package ledger

import (
	"context"
	"time"
)

// entry is the acquisition of a name by an owner.
type entry struct {
	over chan struct{} // closed when the acquisition has ended
	// endless is set while the owner waits under a context without a deadline, and Overlong has not
	// counted it.
	endless bool
	since   time.Duration // when Overlong first found it behind the present claim, by the client's clock
}

// Serialize lets one goroutine at a time acquire a name as the same owner, so that the second finds
// the lock of the first. leave MUST follow. Serialize returns nil if ctx ends first, or at once
// where wait is false and another goroutine acquires the name.
func (l *Ledger) Serialize(ctx context.Context, name string, o Owner, wait bool) (leave func()) {
	_, bounded := ctx.Deadline()
	for {
		busy := l.begin(name, o, wait && !bounded)
		switch {
		case busy == nil:
			return func() { l.cease(name, o) }
		case !wait:
			return nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *Ledger) begin(name string, o Owner, endless bool) (busy <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of(name)
	if e, is := n.entering[o]; is {
		return e.over
	}
	if n.entering == nil {
		n.entering = map[Owner]entry{}
	}
	n.entering[o] = entry{over: make(chan struct{}), endless: endless}
	return nil
}

func (l *Ledger) cease(name string, o Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of(name)
	close(n.entering[o].over)
	delete(n.entering, o)
	l.trim(name)
}

// Overlong returns the claim that is held by an attempt; nil: there is none. waits is the number of
// the client's owners that have waited for it for a TTL, under contexts without a deadline. Each of
// them is counted once.
func (l *Ledger) Overlong(attempt string) (c *Claim, waits int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c = l.heldBy(attempt); c == nil {
		return nil, 0
	}
	entering, now := l.of(c.Grant.Name).entering, l.config.Clock.Now()
	for o, e := range entering {
		switch {
		case !e.endless:
			continue
		case e.since <= c.Began:
			e.since = now
		case now-e.since >= l.config.TTL:
			e.endless = false
			waits++
		}
		entering[o] = e
	}
	return c, waits
}
