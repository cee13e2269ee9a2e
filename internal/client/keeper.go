package client

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/reaper"
)

// keeper is the client as the packages below call it: a ledger.Client, a store.Keeper, and the
// tx.Leases.
type keeper struct{ *Client }

// Ended implements ledger.Client.
func (k keeper) Ended(c *ledger.Claim, e ledger.Ending) {
	if e.Released() {
		k.report.record(c, history.Released, "")
	} else {
		k.report.record(c, history.Lost, fmt.Sprint(e.Cause))
	}
	k.report.ended(c, e.Cause)
}

const (
	// breakersTimeout limits how long Breakers reads.
	breakersTimeout = 100 * time.Millisecond
	// maxBreakers limits the claims that Breakers reads for: Break takes one name.
	maxBreakers = 10
)

// Breakers is as of ledger.Client. It reads the history, unless there are many claims, or the pool
// has no free connection.
func (k keeper) Breakers(ctx context.Context, claims []*ledger.Claim) map[*ledger.Claim]error {
	if len(claims) == 0 || len(claims) > maxBreakers || !k.store.Engine.Connections().Left() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, breakersTimeout)
	defer cancel()
	found := map[*ledger.Claim]error{}
	for _, c := range claims {
		held := c.Event(history.Broken, "")
		if by := k.report.history.Breaker(ctx, held, c.Token(), c.AsListed().Token); by != nil {
			found[c] = by
		}
	}
	return found
}

// GaveUp is as of ledger.Client. The error shows the holder if the caller had a place in the queue,
// this client has the lock, or the database has shown a holder or a queue since the request began.
func (k keeper) GaveUp(in *store.Session, name string, queued bool, began time.Duration, cause error) error {
	state, read := in.Waiters().State(name)
	occupied, row := k.ledger.Occupied(name), state.Row()
	seen := read >= began && !row.Free(0, 0, 0)
	switch {
	case !queued && !occupied && !seen:
		return cause
	case read < 0:
		return k.config.NotAcquired(state, occupied, cause)
	}
	return k.notAcquired(state, cause)
}

// Deadlocked is as of ledger.Client.
func (k keeper) Deadlocked(cycle deadlock.Cycle) error { return k.config.Deadlocked(cycle) }

// Holding implements store.Keeper.
func (k keeper) Holding() bool { return k.ledger.Holding() }

// Unused is as of store.Keeper.
func (k keeper) Unused() bool { return k.ledger.Empty() }

// Stray is as of store.Keeper. If the attempt holds a lock, that may be lost, or another client
// asks for it.
func (k keeper) Stray(attempt string) {
	if k.ledger.Knows(attempt) || attempt == "" && k.ledger.Holding() { // held, or about to be
		k.sessions.Last().Check()
	}
}

// Own logs that calls of Lock have waited for a TTL for a lock of this client, and have no
// deadline. Usually that is the lock of another goroutine. If it is the caller's own, the call does
// not return.
func (k keeper) Own(attempt string) {
	if c, waits := k.ledger.Overlong(attempt); waits > 0 {
		k.config.Log.Info("dblock: Lock waits for a lock of this client; a caller that holds the lock must call Lock "+
			"under its Context", "name", c.Request.Name, "thread", c.Owner.Thread,
			"held for", k.config.Clock.Now()-c.Began, "waiting", waits)
	}
}

// Reclaimed is as of store.Keeper.
func (k keeper) Reclaimed(name string, holder protocol.Holder, because string) {
	k.report.history.Expired(name, holder, because)
}

// Lost is as of store.Keeper.
func (k keeper) Lost(s *store.Session) { k.ledger.LoseSession(s) }

// First starts the client's history and its reaper.
func (k keeper) First() {
	if k.report.history.On() {
		k.sessions.Go(k.report.history.WriteUntilClosed)
	}
	if k.config.Reap {
		k.sessions.Go(func() {
			options := []reaper.Option{
				reaper.Logger(k.config.Log), reaper.While(func() bool { return k.sessions.Alive() != nil }),
			}
			if k.config.Events {
				options = append(options, reaper.Events())
			}
			switch at := k.config.Crash; {
			case at.Off:
				options = append(options, reaper.WithoutCrashDetection())
			case at.Path != "":
				options = append(options, reaper.HostFolder(at.Path))
			}
			engine := *inside.Make[engines.Engine[any]](driver.Engine[any]{Backend: k.engine})
			_ = reaper.Run(clock.With(k.store.Background, k.config.Clock), engine,
				append(options, k.config.Reaper...)...)
		})
	}
}

// Opened is as of store.Keeper.
func (k keeper) Opened(s *session.Session) (lost func()) {
	if k.config.Opened == nil {
		return func() {}
	}
	return k.config.Opened(s)
}

// Beaten is as of store.Keeper.
func (k keeper) Beaten(took time.Duration, err error) {
	if o := k.report.observer; o != nil && o.Heartbeat != nil {
		o.Heartbeat(took, err)
	}
}

// Listener is as of store.Keeper.
func (k keeper) Listener(up bool, err error) {
	if o := k.report.observer; o != nil && o.Listener != nil {
		o.Listener(up, err)
	}
}

// Acquire waits for the lease of a transaction.
func (k keeper) Acquire(ctx context.Context, name string) (*ledger.Claim, error) {
	a := attempt{Client: k.Client, r: &protocol.Request{Name: name}, owner: k.owners.Private(ctx), wait: true}
	return a.acquire(ctx)
}

// Refuse makes ErrNotAcquired.
func (k keeper) Refuse(state driver.State, cause error) error { return k.notAcquired(state, cause) }

// SelfDeadlock makes the error of an owner that would wait for a lock of its own.
func (k keeper) SelfDeadlock(o ledger.Owner, name string) error { return k.selfDeadlock(o, name, 0) }
