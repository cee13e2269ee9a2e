package ledger

import (
	"time"

	"github.com/dblock-go/dblock/internal/contract"
)

// LeaseEnd returns when a fixed lease expires here that was requested at asked and granted at now:
// early by a hundredth of the lease, for clocks that differ in rate, and by two round trips. A
// session is trusted by the same rule (package session), but for at least three quarters of its
// TTL.
func LeaseEnd(lease, asked, now time.Duration) time.Duration {
	return asked + lease - lease/100 - 2*(now-asked)
}

// TooLate reports whether a fixed lease had expired here before its grant came.
func TooLate(lease, asked, now time.Duration) bool {
	return lease != 0 && LeaseEnd(lease, asked, now) <= now
}

// Expiry returns when the fixed lease of a hold expires, by the client's clock.
func (h *Hold) Expiry() time.Duration { return h.lease.At() }

// watchLease lets a hold end with its fixed lease, in place of an earlier end. MUST be called with
// mu locked.
func (l *Ledger) watchLease(h *Hold) {
	h.alarm.silence()
	stop := l.config.Clock.Alarm(h.Expiry(), func() {
		if h.lease.Passed() { // else the alarm of an earlier end was not stopped in time
			l.Expire(h)
		}
	})
	h.alarm = alarm{func() { stop() }}
}

// silence stops an alarm, if there is one.
func (a *alarm) silence() {
	if a.stop != nil {
		a.stop()
	}
}

// Prolong moves the end of a hold's fixed lease, and never back. It returns false if the hold has
// ended, or if its lease has expired here, even unnoticed.
func (l *Ledger) Prolong(h *Hold, end time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !h.relies() || !h.lease.Move(end) {
		return false
	}
	l.watchLease(h)
	return true
}

// Expire ends a hold whose fixed lease has expired. The log does not report it, since the end was
// requested.
func (l *Ledger) Expire(h *Hold) { l.revoke(contract.ErrLeaseOver, h) }
