package client

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// late is an engine one of whose statements waits to be answered, and which, where it is cut off,
// runs all the same: after the client has looked for what came of it.
type late struct {
	driver.Backend
	began  chan struct{}
	answer chan struct{}
	cut    chan struct{}
	ran    chan struct{}
	looked sync.Once
}

func newLate(of driver.Backend) *late {
	return &late{Backend: of, began: make(chan struct{}), answer: make(chan struct{}), cut: make(chan struct{}),
		ran: make(chan struct{})}
}

func (l *late) wait(ctx context.Context, run func(ctx context.Context) error) error {
	close(l.began)
	select {
	case <-l.answer:
		return run(ctx)
	case <-ctx.Done():
	}
	close(l.cut)
	return ctx.Err()
}

type lateTake struct {
	*late
	request driver.Request
}

func (l *lateTake) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Take: l.take, Remove: l.remove}.Run(ctx, l.Backend, ops...)
}

func (l *lateTake) take(ctx context.Context, r driver.Request) (g driver.Grant, taken bool, err error) {
	l.request = r
	err = l.wait(ctx, func(ctx context.Context) error {
		g, taken, err = drivertest.Take(ctx, l.Backend, r)
		return err
	})
	return g, taken, err
}

func (l *lateTake) remove(ctx context.Context, r driver.Removal) ([]driver.Handoff, bool, error) {
	next, left, err := drivertest.Remove(ctx, l.Backend, r)
	if r.Cause != driver.ByAttempt {
		return next, left, err
	}
	l.looked.Do(func() {
		select {
		case <-l.cut:
			_, _, err := drivertest.Take(context.Background(), l.Backend, l.request)
			if err == nil {
				close(l.ran)
			}
		default:
		}
	})
	return next, left, err
}

type lateOpen struct{ *late }

func (l *lateOpen) OpenSession(ctx context.Context, s driver.Session) error {
	return l.wait(ctx, func(ctx context.Context) error { return l.Backend.OpenSession(ctx, s) })
}

// Broken by cutting off what is under way when Close begins: what it does then comes after Close.
func TestCloseWaitsForTheAnswersOfStatementsUnderWay(t *testing.T) {
	for name, of := range map[string]func(*late) driver.Backend{
		"the first lock": func(l *late) driver.Backend { return &lateTake{late: l} },
		"the session":    func(l *late) driver.Backend { return &lateOpen{l} },
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.SQLite(t).SQL(t)
			l, closed := closeWhile(t, db, of)
			time.Sleep(20 * time.Millisecond)
			close(l.answer)
			assert.NoError(t, <-closed)
			select {
			case <-l.cut:
				t.Error("it was cut off")
			default:
			}
			nothingIsLeft(t, db)
		})
	}
}

// Broken by not looking again once the session is dead.
func TestCloseGivesBackWhatAStatementTookAfterItWasCutOff(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	l, closed := closeWhile(t, db, func(l *late) driver.Backend { return &lateTake{late: l} })
	assert.NoError(t, <-closed)
	select {
	case <-l.ran:
	default:
		t.Error("it did not run behind the client's back")
	}
	nothingIsLeft(t, db)
}

// closeWhile begins to close a client while its first lock waits for an answer.
func closeWhile(t *testing.T, db *sql.DB, of func(*late) driver.Backend) (*late, <-chan error) {
	engine := sqlite.New(db)
	l := newLate(engine.Backend)
	client := newClient(t, driver.Engine[*sql.Tx]{Backend: of(l), Transactions: engine.Transactions})
	locked, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := client.Lock(t.Context(), "n")
		locked <- err
	}()
	<-l.began
	go func() {
		err := client.Close(context.Background())
		assert.ErrorIs(t, <-locked, dblock.ErrClosed, "lock")
		closed <- err
	}()
	return l, closed
}

func nothingIsLeft(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, rows := range []string{"dblock_sessions", "dblock_heartbeats", "dblock_locks WHERE session_id IS NOT NULL",
		"dblock_waiters"} {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM " + rows).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d, %v", rows, n, err)
		}
	}
}

// awkward is an engine that makes Close's work harder.
type awkward struct {
	driver.Backend
	entering, enter chan struct{} // a conversion, or the like, says that it is called, and waits
	retry, busy     atomic.Bool   // what EndSession says once; what Release says
}

func (a *awkward) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Other: a.other, Remove: a.remove}.Run(ctx, a.Backend, ops...)
}

func (a *awkward) other(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	if a.enter != nil {
		a.entering <- struct{}{}
		<-a.enter
	}
	return driver.Do(ctx, a.Backend, op)
}

func (a *awkward) EndSession(ctx context.Context, session string) error {
	if a.retry.Swap(false) {
		return driver.ErrRetry
	}
	return a.Backend.EndSession(ctx, session)
}

func (a *awkward) remove(ctx context.Context, r driver.Removal) ([]driver.Handoff, bool, error) {
	if r.Cause == driver.ByHolder && a.busy.Load() {
		return nil, false, driver.ErrBusy
	}
	return drivertest.Remove(ctx, a.Backend, r)
}

func awkwardClient(t *testing.T, a *awkward) (sqlClient, *sql.DB) {
	t.Helper()
	db := dbtest.SQLite(t).SQL(t)
	engine := sqlite.New(db)
	a.Backend = engine.Backend
	client, err := dblock.New(driver.Engine[*sql.Tx]{Backend: a, Transactions: engine.Transactions})
	require.NoError(t, err)
	return client, db
}

func TestCloseBesideAnUnlockOfManyFindsNothingLost(t *testing.T) {
	a := &awkward{entering: make(chan struct{}, 9), enter: make(chan struct{})}
	recorded := make(chan error, 1)
	client, db := awkwardClient(t, a)
	all, err := client.LockAll(t.Context(), []string{"a", "b", "c"})
	require.NoError(t, err)
	go func() {
		c, err := client.Lock(all.Context(), "c")
		if err == nil {
			err = c.Record(t.Context(), "note", "") // keeps Unlock from it
		}
		recorded <- err
	}()
	<-a.entering
	unlocked, closed := make(chan error, 1), make(chan error, 1)
	go func() { unlocked <- all.Unlock(context.Background()) }()
	time.Sleep(50 * time.Millisecond)
	go func() { closed <- client.Close(context.Background()) }()
	time.Sleep(50 * time.Millisecond)
	close(a.enter)
	<-unlocked // nil, or ErrClosed
	if err := <-recorded; err != nil && !errors.Is(err, dblock.ErrClosed) && !errors.Is(err, dblock.ErrNotHeld) {
		t.Error(err)
	}
	assert.NoError(t, <-closed)
	nothingIsLeft(t, db)
}

func TestCloseEndsTheSessionAgainAfterARace(t *testing.T) {
	a := &awkward{}
	client, db := awkwardClient(t, a)
	require.NoError(t, require.ErrOf(client.Lock(t.Context(), "n")))
	a.retry.Store(true)
	assert.NoError(t, client.Close(context.Background()))
	nothingIsLeft(t, db)
}

// Broken by waiting for a transaction of the application's, whose end may come after Close.
func TestCloseDoesNotWaitForATransactionOfTheApplications(t *testing.T) {
	a := &awkward{}
	client, _ := awkwardClient(t, a)
	require.NoError(t, require.ErrOf(client.Lock(t.Context(), "n")))
	a.busy.Store(true)
	closed := make(chan error, 1)
	go func() { closed <- client.Close(context.Background()) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("it goes on for as long as the transaction")
		a.busy.Store(false)
		<-closed
	}
}
