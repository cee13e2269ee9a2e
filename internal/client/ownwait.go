package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/transaction"
)

// txWait is the wait of one Lock or TryLock for open transactions that have locked the name.
type txWait struct {
	since  time.Duration // since when transactions have refused the request; 0: the last answer was another
	logged bool
	first  frozen // at the first refusal of a TryLock; the zero value: it is not known
}

// frozen is what nobody changes while a transaction has locked a name.
type frozen struct {
	commit  string // of the database, where the transaction has locked all of it
	row     bool   // the fields below are known
	token   int64
	holder  string // its attempt
	used    int
	waiters int
}

// frozen reads what nobody changes while a transaction has locked the name, as err says.
func (a *attempt) frozen(ctx context.Context, err error) frozen {
	if locked := new(driver.Locked); errors.As(err, &locked) {
		return frozen{commit: locked.Commit}
	}
	s, err := a.store.Look(ctx, "", a.r.Name)
	if err != nil {
		return frozen{}
	}
	return frozen{row: true, token: s.Token, holder: s.Holder.Attempt, used: s.Used, waiters: s.Waiters}
}

// refused notes the answer to a try. It logs once that transactions have been in the way for a TTL,
// if the context has no deadline: the transaction may be the caller's own, which cannot end then.
func (w *txWait) refused(ctx context.Context, a *attempt, err error) {
	now := a.config.Clock.Now()
	switch _, bounded := ctx.Deadline(); {
	case !errors.Is(err, driver.ErrBusy):
		if ctx.Err() == nil { // the end of ctx is no answer
			w.since = 0
		}
	case w.since == 0:
		w.since = now
		if !a.wait {
			w.first = a.frozen(ctx, err)
		}
	case !w.logged && !bounded && now-w.since >= a.config.TTL:
		w.logged = true
		a.config.Log.Info("dblock: Lock waits: "+openTransaction, "name", a.r.Name)
	}
}

// last returns the error of the last try. If ctx ended during that try, and transactions refused
// the one before it, last returns ErrBusy.
func (w *txWait) last(ctx context.Context, err error) error {
	if ctx.Err() != nil && w.since != 0 && !errors.Is(err, ErrNotAcquired) && !errors.Is(err, driver.ErrBusy) {
		return driver.ErrBusy
	}
	return err
}

// obstacle returns why TryLock gave up after a locked row or a lost race. One transaction has had
// the name all the time if nothing that it freezes has changed since the first refusal.
func (w *txWait) obstacle(ctx context.Context, a *attempt, err error) error {
	switch busy := errors.Is(err, driver.ErrBusy); {
	case errors.Is(err, ErrNotAcquired), errors.Is(err, transaction.ErrUnproven),
		!busy && !errors.Is(err, driver.ErrRetry):
		return err
	case busy && a.config.Clock.Now()-w.since >= store.Trying.Patience && w.first != (frozen{}) &&
		w.first == a.frozen(ctx, err):
		return a.NotAcquired(inTheWay(err))
	}
	return a.NotAcquired(errBusyName)
}

// errBusyName: as far as the client knows, no single transaction had the name's row all the time.
var errBusyName = fmt.Errorf("its row was busy for %v, with requests or transactions of others in turn: try again",
	store.Trying.Patience)

// openTransaction says which transaction locks a name, and what to do if it is the caller's own.
const openTransaction = "an open transaction has locked the name (LockTx, UnlockTx): inside it, do not call Lock"

// inTheWay explains ErrBusy of a request for a lock.
func inTheWay(err error) error { return fmt.Errorf("%s: %w", openTransaction, err) }
