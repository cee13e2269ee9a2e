package ledger

// pledge is what UnlockTx has done to a claim.
type pledge struct {
	begun, answered int  // the calls that were begun, and those that the database has answered
	open            bool // one was begun, and neither has each failed nor Guard shown a rollback
	kept            bool // one of them has succeeded
}

// Promise marks a claim as one that UnlockTx may release. It returns false if the claim has ended.
// answered MUST be called with the outcome of the statement, before UnlockTx returns. If every
// statement so far has failed, the client relies on the lock again.
func (l *Ledger) Promise(c *Claim) (answered func(err error), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.can(promise) {
		return nil, false
	}
	l.happen(c, promise)
	c.pledge.begun++
	return func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		p := &c.pledge
		p.answered++
		if err == nil {
			p.kept = p.kept || c.state == Pledged || c.state == Released
		} else if c.state == Pledged && !p.kept && p.begun == p.answered {
			l.happen(c, rollback)
		}
	}, true
}

// Promised reports whether UnlockTx may have released a lock. It is called before the database is
// asked whether it has the lock. If the database has it, and no transaction was in the way, the
// transaction of UnlockTx was rolled back, and the caller calls shown. If another UnlockTx was in
// flight meanwhile, its statement may have run after the answer, and shown changes nothing.
func (l *Ledger) Promised(c *Claim) (may bool, shown func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := c.pledge
	return c.state == Pledged, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		p := c.pledge
		if before.begun == before.answered && p.begun == before.begun && c.can(rollback) {
			l.happen(c, rollback)
		}
	}
}

// Awaited reports whether an UnlockTx has succeeded, so that only the database knows whether its
// transaction has released the lock.
func (l *Ledger) Awaited(c *Claim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.state == Pledged && c.pledge.kept
}

// ReleasedTx reports whether UnlockTx has released a lock, whose context may be open still.
func (l *Ledger) ReleasedTx(c *Claim) bool { return c.outlives.Load() }

// Unsettled reports whether something beside the caller may release the lock of a claim that was
// dropped: a transaction of UnlockTx, or the client in the background.
func (l *Ledger) Unsettled(c *Claim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.pledge.open || c.Grant.undone != nil
}

// MayPass reports whether a transaction may pass the lease of an attempt, which is kept for another
// transaction of this client. It may only while the name has no waiters, since a transaction that
// comes later than a ticket must not go before it. turn is the lease that was granted for the
// asking transaction, and is marked with tx.
func (l *Ledger) MayPass(attempt string, turn *Grant, waiters int, tx any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.attempts[attempt]
	if g == nil || g.state != Granted || g.present.state != Lent {
		return false
	}
	if g == turn {
		g.tx = tx
		return true
	}
	return waiters == 0 || g.tx == tx
}
