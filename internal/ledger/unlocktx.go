package ledger

// ReleaseTx marks a hold as one that UnlockTx may have released. It returns false if the hold has
// ended. answered MUST be called with the outcome of the statement: if it failed, and no other
// UnlockTx was called, the client relies on the hold again.
func (l *Ledger) ReleaseTx(h *Hold) (answered func(err error), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := h.state == Held
	if !l.remove(h, ReleaseTx) {
		return nil, false
	}
	h.begun++
	mine := h.begun
	return func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		h.answered++
		if err != nil && first && h.begun == mine {
			l.remove(h, Rollback)
		}
	}, true
}

// ReleasedTx reports whether UnlockTx may have released a hold. It is called before the database is
// asked whether it has the hold. If the database has it, and no transaction was in the way, the
// transaction of UnlockTx was rolled back, and the caller calls shown. If another UnlockTx was in
// flight meanwhile, its statement may have run after the answer, and shown changes nothing.
func (l *Ledger) ReleasedTx(h *Hold) (may bool, shown func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun, answered := h.begun, h.answered
	return h.state == ReleasingTx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if begun == answered && h.begun == begun {
			l.remove(h, Rollback)
		}
	}
}

// MayPass reports whether a transaction may pass the lease of an attempt, which is kept for another
// transaction of this client. It may only while the name has no waiters, since a transaction that
// comes later than a ticket must not go before it. turn is the lease that was granted for the
// asking transaction, and is marked with tx.
func (l *Ledger) MayPass(attempt string, turn *Attempt, waiters int, tx any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.attempts[attempt]
	if k == nil || k.state != Lent {
		return false
	}
	if k == turn {
		k.tx = tx
		return true
	}
	return waiters == 0 || k.tx == tx
}
