package election

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
)

// farewell bounds what is said of a resignation before the lock is given back: it is a courtesy.
const farewell = time.Second

// Term is the time for which one candidate leads.
type Term[TX any] struct {
	lock    *dblock.Lock[TX]
	end     context.CancelCauseFunc
	over    chan struct{} // closed when the lock was handed on
	failure error         // why it was not; to be read once over is closed
}

// Name returns the name of the election.
func (t *Term[TX]) Name() string { return t.lock.Name() }

// Token returns the fencing token of the term, which is higher than those of all terms before. See
// dblock.Lock.Token.
func (t *Term[TX]) Token() int64 { return t.lock.Token() }

// Guard makes sure, inside a transaction of the application's, that what it writes is written by
// the leader. See dblock.Lock.Guard.
func (t *Term[TX]) Guard(ctx context.Context, tx TX) error { return t.lock.Guard(ctx, tx) }

// Until is when the term ends if the leader does not reach the database any more. See
// dblock.Lock.Until.
func (t *Term[TX]) Until() time.Time { return t.lock.Until() }

// Asked receives the reason whenever somebody calls dblock.Client.Ask for the name: resign when it
// suits.
func (t *Term[TX]) Asked() <-chan string { return t.lock.Asked() }

// Resign ends the term, from wherever it is called, and does not wait: the context of the leader's
// function ends with cause ErrResigned. What follows is as with Elections.Resign.
func (t *Term[TX]) Resign() { t.end(ErrResigned) }

// handOn gives the lock to the next, once the leader's function has returned.
func (t *Term[TX]) handOn(ctx context.Context, client *dblock.Client[TX]) error {
	t.announceEnd(ctx, client)
	err := t.lock.Unlock(ctx)
	if errors.Is(err, dblock.ErrLost) || errors.Is(err, dblock.ErrClosed) { // then others have handed it on
		return nil
	}
	return err
}

// announceEnd tells those who observe of the end of the term, where no successor will.
func (t *Term[TX]) announceEnd(ctx context.Context, client *dblock.Client[TX]) {
	if t.lock.Context().Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if info, err := client.Inspect(ctx, t.Name()); err == nil && len(info.Waiters) == 0 {
		_ = t.lock.Record(ctx, resigned, "") // observers find out by themselves, later
	}
}

// tenure is the context of a leader. It ends as the lock's does, in the same instant and not a
// goroutine later; it has the lock's values, and those of the context of the campaign.
type tenure[TX any] struct {
	context.Context
	campaign context.Context
	term     *Term[TX]
}

func (t tenure[TX]) Deadline() (time.Time, bool) { return t.campaign.Deadline() }

func (t tenure[TX]) Value(key any) any {
	if key == any(t.term) {
		return true
	}
	if v := t.Context.Value(key); v != nil {
		return v
	}
	return t.campaign.Value(key)
}

// stranger is a context without values: who locks under it is nobody that has a lock already.
type stranger struct{ context.Context }

func (stranger) Value(any) any { return nil }
