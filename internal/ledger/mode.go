package ledger

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Mode is how the database has a lock.
type Mode struct {
	First     int64 // the token of the first claim that the lock is for
	Last      int64 // the token of the last: it identifies the lock in the database
	Units     int   // 0: the whole name
	Of        int
	Knowledge Knowledge
}

// Knowledge is how sure the client is of a mode.
type Knowledge int

// The degrees of Knowledge.
const (
	Known Knowledge = iota
	// LookedUp is a mode that was read after the answer to a conversion was lost. The conversion
	// may still run: only the attempt identifies the lock.
	LookedUp
	Unknown  // the answer to a conversion was lost: the mode has to be read
	Yielding // unknown, during and after a Downgrade: readers may come in beside the lock
)

// Vague reports whether the mode has to be read.
func (m *Mode) Vague() bool { return m.Knowledge >= Unknown }

// Shared reports whether others may hold the name as well.
func (m *Mode) Shared() bool { return m.Units > 0 }

// single reports whether the database shows the claim that has the lock as the only one that the
// lock is for.
func (m *Mode) single() bool { return m.First == m.Last }

// Plain reports whether the lock is for one claim, in a mode that is certain.
func (m *Mode) Plain() bool { return m.single() && m.Knowledge == Known }

// permit reports whether the lock is of a semaphore's units, which are never entered again.
func (m *Mode) permit() bool { return m.Units > 0 && m.Of != protocol.Readers }

// modeBox has the mode of a lock. A goroutine that changes the mode locks the RWMutex; one that
// relies on the mode share-locks it.
type modeBox struct {
	sync.RWMutex
	atomic.Pointer[Mode]
}

// Become changes the mode of a lock to that of a single claim with the token Last. MUST be called
// with Mode locked.
func (c *Claim) Become(m Mode) {
	m.First = m.Last
	c.token.Store(m.Last) // before the mode: who sees this mode sees this token
	c.Grant.Mode.Store(&m)
}

// Single makes a claim the only one that its lock is for, in the database.
func (l *Ledger) Single(ctx context.Context, c *Claim) error {
	done := l.Split(c)
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return c.Over()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ascertain makes a claim the only one that its lock is for, and reads the mode of the lock, unless
// that is known.
func (l *Ledger) Ascertain(ctx context.Context, c *Claim) error {
	mode := &c.Grant.Mode
	if err := l.Single(ctx, c); err != nil || !mode.Load().Vague() {
		return err
	}
	if err := store.LockWithin(ctx, mode.TryLock); err != nil {
		return err
	}
	defer mode.Unlock()
	err := l.ReadMode(ctx, c)
	if errors.Is(err, driver.ErrNotHeld) {
		l.Lose(ctx, err, c)
		err = c.LostFor(err)
	}
	return err
}

// ReadMode reads the mode of a lock, unless it is known or the lock has ended. MUST be called with
// Mode locked.
func (l *Ledger) ReadMode(ctx context.Context, c *Claim) error {
	g := c.Grant
	was := g.Mode.Load()
	for was.Vague() && c.ctx.Err() == nil {
		state, err := l.config.Store.Look(ctx, g.In.ID, g.Name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(state.Granted, func(own driver.OwnGrant) bool { return own.Attempt == g.ID })
		if i < 0 {
			return driver.ErrNotHeld
		}
		now := *was
		now.Knowledge, now.Last = LookedUp, state.Granted[i].Grant.Token
		switch {
		case state.Sharing == 0:
			now.Units, now.Of = 0, 0
		case now.Units == 0:
			now.Units, now.Of = 1, protocol.Readers
		}
		// Its Downgrade may still run, but not with another token.
		if state.Sharing == 0 && was.Knowledge == Yielding {
			held := protocol.Held{Name: g.Name, Session: g.In.ID, Token: now.Last}
			now.Last, err = g.Raise(ctx, held, held.Token+1)
			if errors.Is(err, driver.ErrNotHeld) { // it has run since the look, or the lock is gone
				continue
			}
			if err != nil {
				return err
			}
		}
		c.Become(now)
		break
	}
	return nil
}

// Raise lifts the token of a lock in the database, which knows it as held.
func (g *Grant) Raise(ctx context.Context, held protocol.Held, token int64) (raised int64, err error) {
	result, err := g.In.Do(ctx, protocol.Raise{Held: held, Attempt: g.ID, To: token})
	return result.Grant.Token, err
}
