//go:build unix

package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

type held = dblock.Lock

// handle is a hold and how it is told about.
type handle struct {
	op   int
	lock *held
}

func (a *actor) lock(c command) {
	a.acquire(a.under(c), a.client, c.Op, c.Name, c.Portion, false)
}

// under is the context of a request: that of its owner's locks, or of a new owner.
func (a *actor) under(c command) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.handles[c.Under]; h != nil {
		return h.lock.Context()
	}
	if all := a.several[c.Under]; all != nil {
		return all.Context()
	}
	return context.Background()
}

// lockAll tells of several locks as if they were one, of the first name.
func (a *actor) lockAll(c command) {
	var options []dblock.LocksOption
	for _, option := range c.Portion.options() {
		options = append(options, option)
	}
	all, err := a.client.LockAll(a.under(c), c.Names, options...)
	if err != nil {
		a.report(event{What: evRefused, Op: c.Op, Name: c.Names[0]}.with(err))
		return
	}
	a.mu.Lock()
	a.several[c.Op] = all
	a.mu.Unlock()
	a.report(event{What: evHeld, Op: c.Op, Name: c.Names[0], Token: all.Token(c.Names[0]), Portion: c.Portion})
}

func (a *actor) unlockAll(c command) {
	a.mu.Lock()
	all := a.several[c.Hold]
	a.mu.Unlock()
	a.report(event{What: evUnlocked, Op: c.Hold}.with(all.Unlock(context.Background())))
}

// acquire tells of the attempt and of what came of it; nil: no lock.
func (a *actor) acquire(ctx context.Context, c *client, op int, name string, g portion, try bool) *handle {
	asked := session.Boottime()
	a.report(event{What: evAsked, Op: op, Name: name, At: asked, Portion: g})
	call := c.Lock
	if try {
		call = c.TryLock
	}
	lock, err := call(ctx, name, g.options()...)
	if err != nil {
		a.report(event{What: evRefused, Op: op, Name: name, Portion: g}.with(err))
		return nil
	}
	return a.hold(op, lock, g, asked)
}

func (a *actor) hold(op int, lock *held, g portion, asked time.Duration) *handle {
	at := session.Boottime()
	ctx := lock.Context()
	if a.config.Bug == bugAsksNobody {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		context.AfterFunc(ctx, cancel)
	}
	a.witness.add(op, ctx, asked)
	h := &handle{op: op, lock: lock}
	a.mu.Lock()
	a.handles[op] = h
	a.mu.Unlock()
	a.report(event{What: evHeld, Op: op, Name: lock.Name(), Token: lock.Token(), At: at, Portion: g})
	context.AfterFunc(lock.Context(), func() {
		at, cause := session.Boottime(), context.Cause(lock.Context())
		if e := (event{What: evLost, Op: op, Name: lock.Name(), Token: lock.Token(),
			At: at}).with(cause); e.is(kindLost) || e.is(kindClosed) {
			e.Live = a.witness.live(op)
			a.report(e)
		}
	})
	return h
}

func (a *actor) handle(op int) *handle {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.handles[op]
}

func (a *actor) unlock(h *handle) {
	a.report(event{What: evEnding, Op: h.op, Name: h.lock.Name(), Token: h.lock.Token(), Live: a.witness.live(h.op)})
	err := h.lock.Unlock(context.Background())
	a.report(event{What: evUnlocked, Op: h.op, Name: h.lock.Name(), Token: h.lock.Token()}.with(err))
	a.witness.remove(h.op)
}

// regrade makes a writer of a reader, if nobody else reads, or a reader of a writer.
func (a *actor) regrade(h *handle) {
	call, to := h.lock.Downgrade, reader
	if h.lock.Shared() {
		call, to = h.lock.TryUpgrade, portion{}
	}
	told := event{What: evConverting, Op: h.op, Name: h.lock.Name(), Token: h.lock.Token(), Live: a.witness.live(h.op),
		Portion: to}
	a.report(told)
	err := call(context.Background())
	for range 3 {
		if err == nil || told.with(err).known() {
			break
		}
		err = call(context.Background()) // it is not known which of the two the lock is
	}
	a.report(event{What: evConverted, Op: h.op, Name: h.lock.Name(), Token: h.lock.Token(), Portion: to}.with(err))
}

// known reports whether what was asked for was certainly not done, or is of no use any more.
func (e event) known() bool {
	return e.is(kindNotAcquired) || e.is(kindCapacity) || e.is(kindLost) || e.is(kindNotHeld) || e.is(kindClosed)
}

// write changes the resource that the lock protects, unless a holder with a higher token did
// already.
func (a *actor) write(h *handle) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var rows int64
	result, err := a.db.ExecContext(ctx, fmt.Sprintf(
		"UPDATE resource SET n = n + 1, token = %d WHERE name = '%s' AND token <= %[1]d", h.lock.Token(),
		h.lock.Name()))
	if err == nil {
		rows, err = result.RowsAffected()
	}
	a.report(event{What: evWrote, Op: h.op, Name: h.lock.Name(), Token: h.lock.Token(), Rows: rows}.with(err))
}
