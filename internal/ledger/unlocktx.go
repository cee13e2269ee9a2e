package ledger

// ReleaseTx marks a hold as one that UnlockTx may release. It returns false if the hold has ended.
// answered MUST be called with the outcome of the statement, before UnlockTx returns. If every
// statement so far has failed, the client relies on the hold again.
func (l *Ledger) ReleaseTx(h *Hold) (answered func(err error), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.remove(h, ReleaseTx) {
		return nil, false
	}
	h.begun++
	return func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		h.answered++
		if err != nil {
			if h.state == ReleasingTx && h.begun == h.answered {
				l.remove(h, Rollback)
			}
		} else if _, open := h.state.after(Await); open {
			l.move(h.Attempt, Await)
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
	return h.state.inTx(), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if begun == answered && h.begun == begun {
			l.remove(h, Rollback)
		}
	}
}

// Absent finishes a hold that was unlocked, and that the database does not have. It is lost unless
// an UnlockTx has succeeded, or the client was releasing it in the background.
func (l *Ledger) Absent(h *Hold) (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost = h.state == Releasing || h.state == Overtaking
	l.move(h.Attempt, Finish)
	return lost
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
