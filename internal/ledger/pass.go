package ledger

import "context"

// Pass gives the lock of a claim that was released to the next one. It returns false if none
// follows: then the caller releases the lock in the database. Pass waits for the end of a Split,
// after which the database shows the present claim as the only one. After the last claim, it waits
// for the answer to a request that may have added others to the place before the grant: they have
// the next tokens. If ctx ends before that, the caller has to release the lock.
func (l *Ledger) Pass(ctx context.Context, c *Claim) (passed bool, err error) {
	for {
		passed, unknown := l.tryPass(c)
		if unknown == nil {
			return passed, nil
		}
		select {
		case <-unknown:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// tryPass is Pass without waiting. While it is not known which claim is next, it returns the
// channel to wait for.
func (l *Ledger) tryPass(c *Claim) (passed bool, unknown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch g := c.Grant; {
	case g.split != nil:
		return false, g.split
	case g.present == c && g.mayGrow():
		return false, g.growing
	}
	return l.pass(c), nil
}

// mayGrow reports whether no claim waits, and a request in flight may have added some. MUST be
// called with mu locked.
func (g *Grant) mayGrow() bool {
	return g.growing != nil && len(g.waiting) == 0 && g.state == Granted && g.whole() &&
		g.Given.Has(g.Given.First+int64(g.members))
}

// pass gives the lock of a claim to the next one. MUST be called with mu locked.
func (l *Ledger) pass(c *Claim) bool {
	g := c.Grant
	if g.state != Granted || g.present != c {
		return false
	}
	if len(g.waiting) == 0 {
		l.move(g, leave)
		return false
	}
	l.happen(c, finish)
	g.serve()
	return true
}
