package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
)

// announceTimeout bounds the announcement of a resignation before the release, since observers do
// not depend on it.
const announceTimeout = time.Second

// Term is the time for which one candidate leads.
type Term struct {
	lock    *dblock.Lock
	end     context.CancelCauseFunc
	over    chan struct{} // closed when the lock was released, or its release has failed
	failure error         // of the release; to be read once over is closed

	heavier chan struct{} // closed when a heavier candidate waits
	look    func()        // looks for one until the term ends
	looks   sync.Once     // look was begun, or is not to be begun any more
	looking sync.WaitGroup
}

// Name returns the name of the election.
func (t *Term) Name() string { return t.lock.Name() }

// Token returns the fencing token of the term, which is higher than those of all terms before. See
// dblock.Lock.Token.
func (t *Term) Token() int64 { return t.lock.Token() }

// Lock returns the lock of the term, for dblock.Client.Guard: the writes of a guarded transaction
// are those of the leader. Resign ends the term, and releases the lock after the leader's function
// has returned.
func (t *Term) Lock() *dblock.Lock { return t.lock }

// Until returns when the term ends if the leader does not reach the database any more. See
// dblock.Lock.Until.
func (t *Term) Until() time.Time { return t.lock.Until() }

// Asked receives the reason of each dblock.Client.Ask for the name. The leader should resign when
// it suits.
func (t *Term) Asked() <-chan string { return t.lock.Asked() }

// Resign ends the term without waiting. The context of the leader's function ends with cause
// ErrResigned. The rest follows as with Elections.Resign. Any goroutine may call it.
func (t *Term) Resign() { t.end(ErrResigned) }

// handOff releases the lock, after the leader's function has returned.
func (t *Term) handOff(ctx context.Context, i *inspect.Inspector) error {
	t.announceEnd(ctx, i)
	live := ctx.Err() == nil
	err := t.lock.Unlock(ctx)
	if err != nil && live && ctx.Err() != nil { // the campaign ended during the call: the next one has a few seconds
		err = t.lock.Unlock(ctx)
	}
	if errors.Is(err, dblock.ErrLost) || errors.Is(err, dblock.ErrClosed) { // the lock was released otherwise
		return nil
	}
	return err
}

// announceEnd records the end of the term for the observers, if no successor's term will notify
// them.
func (t *Term) announceEnd(ctx context.Context, i *inspect.Inspector) {
	if t.lock.Context().Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	if info, err := i.Lock(ctx, t.Name()); err == nil && len(info.Waiters) == 0 {
		_ = t.lock.Record(ctx, resigned, "") // on failure observers notice the end later
	}
}

// leaderContext is the context of a leader. It ends at the same instant as the lock's, without a
// goroutine in between. It has the lock's values, and those of the context of the campaign.
type leaderContext struct {
	context.Context
	campaign context.Context
	term     *Term
}

func (t leaderContext) Deadline() (time.Time, bool) { return t.campaign.Deadline() }

func (t leaderContext) Value(key any) any {
	if key == any(t.term) {
		return true
	}
	if v := t.Context.Value(key); v != nil {
		return v
	}
	return t.campaign.Value(key)
}

// ownerless is a context without values: a Lock under it has an owner that holds no lock yet.
type ownerless struct{ context.Context }

func (ownerless) Value(any) any { return nil }
