package ledger

import (
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
)

// Again enters a lock once more. It returns false if the client does not rely on it.
func (l *Ledger) Again(c *Claim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.relies() || c.entries == 0 {
		return false
	}
	c.entries++
	return true
}

// Leave takes back one entry of a lock, and returns the number of those before. With the last one
// the lock counts as released.
func (l *Ledger) Leave(c *Claim) (before int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = c.entries
	c.entries = max(before-1, 0)
	return before
}

// Entered returns the number of a lock's entries.
func (l *Ledger) Entered(c *Claim) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.entries
}

// Once refuses to change a lock that was entered again: other code relies on it as it is. MUST be
// called with Order locked: then no entry is added.
func (l *Ledger) Once(c *Claim) error {
	if n := l.Entered(c); n > 1 {
		return fmt.Errorf("%w: the lock was entered %d times", driver.ErrUnsupported, n)
	}
	return nil
}
