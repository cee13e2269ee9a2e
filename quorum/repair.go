package quorum

import (
	"context"
	"math/rand/v2"
	"time"
)

// repair schedules a request to the nodes that do not hold the lock. So a lock survives any number
// of nodes that go and come back, as long as a majority is left at each moment. MUST be called with
// mu locked.
func (l *Lock) repair() {
	if !l.held || l.repairTimer != nil {
		return
	}
	for _, m := range l.members {
		if m == nil {
			l.repairTimer = time.AfterFunc(2*l.c.limit+rand.N(l.c.limit), l.rejoin)
			return
		}
	}
}

// rejoin requests the lock once from each node that does not hold it.
func (l *Lock) rejoin() {
	l.mu.Lock()
	if !l.held || !l.c.begin() {
		l.mu.Unlock()
		return
	}
	defer l.c.calls.Done()
	var missing []int
	for i, m := range l.members {
		if m == nil {
			missing = append(missing, i)
		}
	}
	l.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(context.Background(), l.c.limit, errLate)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	done := make(chan struct{}, len(missing))
	for _, i := range missing {
		l.c.calls.Go(func() {
			defer func() { done <- struct{}{} }()
			if m, _, err := l.c.grant(ctx, i, l.name); err == nil && l.join(i, m) && m.Token() < l.token {
				_, _ = m.Raise(ctx, l.token) // best effort: one more node knows the token
			}
		})
	}
	for range missing {
		select {
		case <-done:
		case <-ctx.Done(): // a node that hangs delays no other: it joins when it answers
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.repairTimer = nil
	l.repair()
}
