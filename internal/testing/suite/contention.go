package suite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a read that locks the gaps between names along with a name: one with SKIP LOCKED, or of
// a missing row.
func lockTxNewNames(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		first, second := beginTx(t, a, level), beginTx(t, a, level)
		lockTx(t, c, first, name+"/1")
		waiting := async(func() error { return c.LockTx(context.Background(), second, name+"/1") })
		stillWaits(t, 100*time.Millisecond, waiting)
		began := time.Now()
		lockTx(t, c, first, name+"/2")
		if e.wiring.Kind != SQLite { // where nobody else writes meanwhile
			for _, near := range []string{"", "/0", "/1+", "/2+", "/3"} {
				unlock(t, lock(t, other, name+near))
			}
		}
		if took := time.Since(began); took > soon {
			t.Errorf("new names took %v", took)
		}
		commit(t, first)
		err := within(t, soon, "the second transaction goes on", waiting)
		if errors.Is(err, driver.ErrRetry) && e.snapshots(t, level) {
			rollback(t, second) // its snapshot is older than the row
			return
		}
		require.NoError(t, err)
		e.usable(t, second)
	})
}

// writeInTurn runs transactions one after the other, each of which locks its names in one call and
// writes a row of app.
func writeInTurn(
	t *testing.T, a App, c Client, level sql.IsolationLevel, rounds int, limit time.Duration,
	names func(round int) []string,
) {
	for round := range rounds {
		tx, err := a.begin(context.Background(), level)
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		these := names(round)
		err = c.LockTx(ctx, tx, these...)
		cancel()
		if err == nil {
			err = tx.exec(context.Background(), "INSERT INTO app (n) VALUES (1)")
		}
		assert.NoError(t, err, "round", round)
		assert.NoError(t, tx.commit(context.Background()))
	}
}

func lockTxEmptyTable(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	a, c := e.appClient(t, 8)
	level := sql.LevelDefault
	if e.snapshots(t, sql.LevelRepeatableRead) {
		level = e.readCommitted()
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			writeInTurn(t, a, c, level, 10, soon, func(round int) []string {
				name := fmt.Sprintf("acc/%d/", round)
				return []string{name + "1", name + "2"}
			})
		})
	}
	all.Wait()
	assert.Equal(t, e.number(t, "SELECT count(*) FROM app"), 40, "of 40 transactions")
}

// Broken by locking in the order given.
func lockTxSorted(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	var all sync.WaitGroup
	for i := range 6 {
		a, c := e.appClient(t, 4)
		all.Go(func() {
			writeInTurn(t, a, c, e.levels()[0], 15, patience, func(round int) []string {
				names := []string{"a", "b", "c"}
				return append([]string{names[(i+round)%3]}, names...)
			})
		})
	}
	all.Wait()
	assert.Equal(t, e.number(t, "SELECT count(*) FROM app"), 90, "of 90 transactions")
}

// Broken by waiting in turns that are shorter than the server needs to find a deadlock.
func lockTxDeadlock(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // the first has locked the database
		return
	}
	e.exec(t, "CREATE TABLE app (n integer)")
	a, c := e.appClient(t, 8)
	txs := []Tx{beginTx(t, a, e.levels()[0]), beginTx(t, a, e.levels()[0])}
	names := []string{"a", "b"}
	lockTx(t, c, txs[0], "a")
	lockTx(t, c, txs[1], "b")
	type result struct {
		i   int
		err error
	}
	results := make(chan result, 2)
	for i, tx := range txs {
		go func() { results <- result{i, c.LockTx(context.Background(), tx, names[1-i])} }()
	}
	first := within(t, patience, "one is told", results)
	if first.err != nil { // where the engine has not ended the loser's transaction itself
		rollback(t, txs[first.i])
	}
	second := within(t, patience, "the other goes on", results)
	winner, loser := first, second
	if first.err != nil {
		winner, loser = second, first
	}
	is(t, loser.err, driver.ErrRetry)
	require.NoError(t, winner.err)
	e.usable(t, txs[winner.i])
}

// Broken by a statement that waits for the row for as long as it is locked.
func noConnectionWaits(t *testing.T, e *env) {
	holder, inTx := e.appClient(t, 5)
	tx := beginTx(t, holder, e.levels()[0])
	lockTx(t, inTx, tx, "n")
	size := 2
	if e.wiring.reserves() {
		size = 5
	}
	a, c := e.appClient(t, size)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting []<-chan outcome
	for range 8 {
		waiting = append(waiting, locking(ctx, c, "n"))
	}
	for began := time.Now(); time.Since(began) < time.Second; { // by then each has tried more than once
		giveBack, err := a.borrow(brief(t))
		require.NoError(t, err, "the application gets no connection")
		giveBack()
	}
	cancel()
	for _, w := range waiting {
		calledOff(t, within(t, soon, "the waiter gives up", w).err, context.Canceled)
	}
	rollback(t, tx)
}

func lockTxWholePool(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	const size = 5
	a, c := e.appClient(t, size)
	unlock(t, lock(t, c, "the client has its own connections"))
	var all sync.WaitGroup
	for range 2 * size {
		all.Go(func() {
			tx, err := a.begin(brief(t), e.levels()[0])
			if err != nil {
				t.Error(err)
				return
			}
			defer tx.rollback()
			if err := c.LockTx(brief(t), tx, "n"); err != nil {
				t.Error(err)
				return
			}
			assert.NoError(t, tx.exec(context.Background(), "INSERT INTO app (n) VALUES (1)"))
			assert.NoError(t, tx.commit(context.Background()))
		})
	}
	all.Wait()
	assert.Equal(t, e.number(t, "SELECT count(*) FROM app"), 2*size, "transactions")
}

// Broken by counting a lease behind one transaction as that of every transaction of the client:
// each goes straight to the row.
func lockTxStream(t *testing.T, e *env) {
	const streams, tickets = 4, 6
	limit, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := e.app(t, streams+9)
	c, other := e.clientOf(t, a), e.client(t)
	first := lock(t, other, "n")
	tx := beginTx(t, a, e.levels()[0])
	locked := async(func() error { return c.LockTx(limit, tx, "n") })
	e.queued(t, "n", 1)
	var served, late atomic.Int64
	var order, all sync.WaitGroup
	for i := range int64(tickets) {
		order.Go(func() {
			l, err := other.Lock(limit, "n")
			if err != nil {
				t.Errorf("ticket %d: %v", i, err)
				return
			}
			assert.Equal(t, served.Add(1)-1, i, "served before ticket", i)
			unlock(t, l)
		})
		e.queued(t, "n", int(i)+2)
	}
	unlock(t, first)
	require.NoError(t, within(t, soon, "LockTx has its turn", locked))
	var over atomic.Bool // no LockTx is cut off: its statement might run after all
	begun := make(chan struct{}, streams)
	for range streams {
		all.Go(func() {
			for once := true; !over.Load(); once = false {
				tx, err := a.begin(context.Background(), e.levels()[0])
				if err != nil {
					t.Error(err)
					return
				}
				if once {
					begun <- struct{}{}
				}
				err = c.LockTx(limit, tx, "n") // it comes after all tickets
				if err == nil && served.Load() < tickets {
					late.Add(1)
				}
				if err != nil && !errors.Is(err, driver.ErrRetry) {
					t.Error(err)
				}
				_ = tx.rollback()
			}
		})
	}
	for range streams {
		within(t, soon, "the stream begins", begun)
	}
	select {
	case <-time.After(200 * time.Millisecond): // for them to stand at the row, where they should not
	case <-limit.Done():
	}
	commit(t, tx)
	order.Wait()
	over.Store(true)
	all.Wait()
	if n := late.Load(); n > 0 {
		t.Errorf("%d transactions passed leases that were queued before they came", n)
	}
	e.free(t, "n")
}
