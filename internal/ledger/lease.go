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

// alarm ends a claim by itself, or the context of one that UnlockTx has released.
type alarm struct {
	stop func() // nil: the lock ends with its session only
}

// TooLate returns how long the grant of a claim took, if its fixed lease had expired here before.
func (c *Claim) TooLate(now time.Duration) (took time.Duration, late bool) {
	g := c.Grant
	return now - g.asked, c.Fixed() && LeaseEnd(g.Given.Lease, g.asked, now) <= now
}

// Expiry returns when the fixed lease of a claim expires, by the client's clock.
func (c *Claim) Expiry() time.Duration { return c.lease.At() }

// watchLease lets a claim end with its fixed lease, in place of an earlier end. MUST be called with
// mu locked.
func (l *Ledger) watchLease(c *Claim) {
	c.alarm.silence()
	stop := l.config.Clock.Alarm(c.Expiry(), func() {
		if c.lease.Passed() { // else the alarm of an earlier end was not stopped in time
			l.Expire(c)
		}
	})
	c.alarm = alarm{func() { stop() }}
}

// silence stops an alarm, if there is one.
func (a *alarm) silence() {
	if a.stop != nil {
		a.stop()
	}
}

// Prolong moves the end of a claim's fixed lease, and never back. It returns false if the claim has
// ended, or if its lease has expired here, even unnoticed.
func (l *Ledger) Prolong(c *Claim, end time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.relies() || !c.lease.Move(end) {
		return false
	}
	l.watchLease(c)
	return true
}

// Expire ends a claim whose fixed lease has expired. The log does not report it, since the end was
// requested.
func (l *Ledger) Expire(c *Claim) { l.revoke(contract.ErrLeaseOver, c) }
