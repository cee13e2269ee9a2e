package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// excluding are the versions of servers whose row locks were seen to exclude, in this process.
var excluding sync.Map

// trial has a value while a server is on trial: of several clients that open a session at once, one
// tries.
var trial = make(chan struct{}, 1)

// trialLimit bounds a trial, and the wait for one.
const trialLimit = 2 * time.Second

// tryLocks has the server show that its row locks exclude. A server may call itself MySQL, accept
// the statements, and lock nothing. One transaction locks the row of the session, which no other
// client uses yet, and another one tries to. That is done once for each version of a server.
//
// The only error is ErrConfig: a connection that breaks proves nothing. tryLocks needs two
// connections at once, and closes the second one. If the pool has none to spare, it leaves the
// proof to a later session. Of several nodes that write, each locks for itself, and a pool may
// reach two of them: there only writes exclude.
func (e *engine) tryLocks(ctx context.Context, session string) error {
	version := e.server().version
	if _, seen := excluding.Load(version); seen || e.anyServer {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	select {
	case trial <- struct{}{}:
		defer func() { <-trial }()
	case <-ctx.Done():
		return nil
	}
	switch err := e.tryPairs(ctx, session); {
	case errors.Is(err, driver.ErrConfig):
		return err
	case err == nil:
		excluding.Store(version, true)
	}
	return nil
}

// errNoTrial is the error of a trial that did not take place.
var errNoTrial = errors.New("the locks were not tried")

func (e *engine) tryPairs(ctx context.Context, session string) error {
	if s := e.db.Stats(); s.MaxOpenConnections > 0 && s.MaxOpenConnections-s.InUse < 2 {
		return errNoTrial
	}
	holder, err := e.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer holder.Close()
	if info, err := e.askServer(ctx, holder); err != nil || info.writers != "" {
		return driver.Join(errNoTrial, err)
	}
	other, err := e.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer mysqlserver.Discard(other) // or the pool would keep it idle
	for _, pair := range e.server().facts().pairs {
		if err := e.tryPair(ctx, holder, other, session, pair); err != nil {
			return err
		}
	}
	return nil
}

// pair is a lock, and the ways by which another transaction must not get it.
type pair struct {
	holds string
	tries []string
}

// tryPair returns ErrConfig if both transactions get the row.
func (e *engine) tryPair(ctx context.Context, holder, other *sql.Conn, session string, p pair) error {
	held, err := holder.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer held.Rollback()
	if locked, err := e.tryLock(ctx, held, session, p.holds); err != nil || !locked { // the session has ended
		return driver.Join(errNoTrial, err)
	}
	trying, err := other.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer trying.Rollback()
	version := e.server().version
	for _, how := range p.tries {
		locked, err := e.tryLock(ctx, trying, session, how)
		switch n := mysqlserver.Number(err); {
		case n == mysqlserver.LockNoWait, n == mysqlserver.LockWaitTimeout, err == nil && !locked:
		case n != 0 && mysqlserver.Kind(n) == nil && !transaction.Denied(err):
			return driver.Fail(driver.ErrConfig, fmt.Errorf("the server (%s) cannot lock a row by %s: %w", version, how,
				err))
		case err != nil:
			return err
		default:
			// A holder whose connection broke meanwhile had lost the row. vtgate answers a SELECT
			// without a table by itself.
			if _, err := e.tryLock(ctx, held, session, ""); err != nil {
				return err
			}
			return driver.Fail(driver.ErrConfig, fmt.Errorf("the locks of the server (%s) exclude nothing: a row that "+
				"one transaction had locked by %s was locked by another by %s", version, p.holds, how))
		}
	}
	return nil
}

// tryLock locks the row of a session, and reports whether there is one to be locked.
func (e *engine) tryLock(ctx context.Context, tx *sql.Tx, session, how string) (bool, error) {
	text := e.prepared.tables.In().MySQL("SELECT id FROM dblock_sessions WHERE id = '" + session + "' " + how)
	return found(tx.QueryRowContext(ctx, text).Scan(new(string)))
}
