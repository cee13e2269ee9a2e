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
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// late is an engine one of whose statements waits to be answered, and which, where it is cut off,
// runs all the same: after the client has looked for what came of it.
type late struct {
	began   chan struct{}
	answer  chan struct{}
	cut     chan struct{}
	ran     chan struct{}
	looked  sync.Once
	request protocol.Take
}

func newLate() *late {
	return &late{began: make(chan struct{}), answer: make(chan struct{}), cut: make(chan struct{}),
		ran: make(chan struct{})}
}

func (l *late) wait(ctx context.Context, c *fakedb.Call) error {
	close(l.began)
	select {
	case <-l.answer:
		return c.Do(ctx)
	case <-ctx.Done():
	}
	close(l.cut)
	return ctx.Err()
}

// take is the hook of an engine whose Take is late.
func (l *late) take(ctx context.Context, c *fakedb.Call) (err error) {
	if take, is := c.Op().(protocol.Take); is {
		l.request = take
		return l.wait(ctx, c)
	}
	err = c.Do(ctx)
	if !c.Removes(protocol.ByAttempt) {
		return err
	}
	l.looked.Do(func() {
		select {
		case <-l.cut:
			if _, err := driver.Do(context.Background(), c.Engine, l.request); err == nil {
				close(l.ran)
			}
		default:
		}
	})
	return err
}

// open is the hook of an engine whose OpenSession is late.
func (l *late) open(ctx context.Context, c *fakedb.Call) error {
	if c.Method == "OpenSession" {
		return l.wait(ctx, c)
	}
	return c.Do(ctx)
}

// Broken by cutting off what is under way when Close begins: what it does then comes after Close.
func TestCloseWaitsForTheAnswersOfStatementsUnderWay(t *testing.T) {
	for name, of := range map[string]func(l *late, ctx context.Context, c *fakedb.Call) error{
		"the first lock": (*late).take, "the session": (*late).open,
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
	l, closed := closeWhile(t, db, (*late).take)
	assert.NoError(t, <-closed)
	select {
	case <-l.ran:
	default:
		t.Error("it did not run behind the client's back")
	}
	nothingIsLeft(t, db)
}

// closeWhile begins to close a client while its first lock waits for an answer.
func closeWhile(t *testing.T, db *sql.DB, hook func(*late, context.Context, *fakedb.Call) error) (*late, <-chan error) {
	l := newLate()
	client := hookedClient(t, db, func(ctx context.Context, c *fakedb.Call) error { return hook(l, ctx, c) })
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
	entering, enter chan struct{} // a conversion, or the like, says that it is called, and waits
	retry, busy     atomic.Bool   // what EndSession says once; what Release says
}

func (a *awkward) hook(ctx context.Context, c *fakedb.Call) error {
	switch {
	case c.Moves() && a.enter != nil:
		a.entering <- struct{}{}
		<-a.enter
	case c.Method == "EndSession" && a.retry.Swap(false):
		return driver.ErrRetry
	case c.Removes(protocol.ByHolder) && a.busy.Load():
		return driver.ErrBusy
	}
	return c.Do(ctx)
}

func awkwardClient(t *testing.T, a *awkward) (sqlClient, *sql.DB) {
	t.Helper()
	db := dbtest.SQLite(t).SQL(t)
	client, err := dblock.New(fakedb.Through(sqlite.New(db), a.hook))
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
