package enginetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
)

var transactions = []test{
	{"LockTx is held until the transaction commits or is rolled back", lockTxHeld},
	{"LockTx and leases exclude each other, and neither Try waits", lockTxAndLease},
	{"LockTx waits its turn for a lease, and the next waiter comes after the transaction", lockTxTurn},
	{"a LockTx that its context ends leaves nothing, and the transaction goes on", lockTxCancelled},
	{"a transaction that others wait for goes on to new names, and so does everybody else", lockTxNewNames},
	{"many transactions lock several new names at once", lockTxEmptyTable},
	{"many transactions lock several names in any order without a deadlock", lockTxSorted},
	{"of two transactions that wait for each other one is told, and the other goes on", lockTxDeadlock},
	{"whoever waits for a name that a long transaction has locked holds no connection of the pool", noConnectionWaits},
	{"LockTx for one name in as many transactions as the pool has connections goes through them one by one", lockTxWholePool},
	{"LockTx in the same transaction, or under the lease of the same owner, is held already", lockTxAgain},
	{"a stream of LockTx of one client does not pass the leases that are queued", lockTxStream},
	{"LockTx refuses bad input before any I/O", lockTxInput},
}

func lockTx(t testing.TB, c Client, tx Tx, name string, options ...dblock.LockOption) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.LockTx(ctx, tx, name, options...); err != nil {
		t.Fatal(err)
	}
}

// Broken by a LockTx that locks nothing.
func lockTxHeld(t *testing.T, e *env) {
	a := e.app(t, 8)
	c := e.clientOf(t, a)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		if e.wiring.Kind == Postgres && level != sql.LevelReadCommitted {
			unlock(t, lock(t, c, name)) // a snapshot from before the name's row was made cannot lock it
		}
		for _, end := range []func(testing.TB, Tx){commit, rollback} {
			first := beginTx(t, a, level)
			lockTx(t, c, first, name)
			second := beginTx(t, a, level)
			is(t, c.TryLockTx(brief(t), second, name), dblock.ErrNotAcquired)
			got := make(chan error, 1)
			go func() { got <- c.LockTx(context.Background(), second, name) }()
			select {
			case err := <-got:
				t.Fatalf("LockTx beside another: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			if err := first.exec(t.Context(), "INSERT INTO app (n) VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			before := e.number(t, "SELECT count(*) FROM app")
			end(t, first)
			after := e.number(t, "SELECT count(*) FROM app")
			err := within(t, soon, "the second transaction has the lock", got)
			if stale := errors.Is(err, driver.ErrRetry); stale && after > before && e.wiring.Kind == Postgres && level != sql.LevelReadCommitted {
				rollback(t, second) // its snapshot is from before the wait
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if n, err := second.number(t.Context(), "SELECT count(*) FROM app"); err != nil || n != after {
				t.Errorf("the second transaction sees %d of %d rows: not what was done under the lock before it (%v)", n, after, err)
			}
			e.usable(t, second)
		}
	})
}

func lockTxAndLease(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		for _, client := range []Client{c, other} {
			l := lock(t, client, name)
			tx := beginTx(t, a, level)
			err := c.TryLockTx(brief(t), tx, name)
			is(t, err, dblock.ErrNotAcquired)
			var who *dblock.NotAcquiredError
			if !errors.As(err, &who) || who.Token != l.Token() {
				t.Errorf("%v: want who holds it", err)
			}
			e.usable(t, tx)
			unlock(t, l)

			tx = beginTx(t, a, level)
			lockTx(t, c, tx, name)
			began := time.Now()
			refused(t, client, name)
			if took := time.Since(began); took > soon/2 {
				t.Errorf("TryLock waited %v for a transaction", took)
			}
			waiting := locking(t.Context(), client, name)
			select {
			case o := <-waiting:
				t.Fatalf("Lock beside LockTx: %v, %v", o.lock, o.err)
			case <-time.After(300 * time.Millisecond): // longer than anybody is patient
			}
			e.usable(t, tx)
			unlock(t, granted(t, soon, waiting))
			e.free(t, name)
		}
	})
}

func lockTxTurn(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		first := lock(t, other, name)
		tx := beginTx(t, a, level)
		locked := make(chan error, 1)
		go func() { locked <- c.LockTx(context.Background(), tx, name) }()
		e.queued(t, name, 1)
		after := locking(t.Context(), other, name)
		e.queued(t, name, 2)
		unlock(t, first)
		err := within(t, soon, "LockTx has its turn", locked)
		if err != nil { // a snapshot from before its turn
			if e.wiring.Kind != Postgres || level == sql.LevelReadCommitted {
				t.Fatal(err)
			}
			rollback(t, tx)
			unlock(t, granted(t, soon, after))
			e.free(t, name)
			return
		}
		select {
		case o := <-after:
			t.Fatalf("the next waiter came before the transaction ended: %v, %v", o.lock, o.err)
		case <-time.After(100 * time.Millisecond):
		}
		e.usable(t, tx)
		unlock(t, granted(t, soon, after))
		e.free(t, name)
	})
}

// Broken by giving the driver a context that ends: it closes the connection.
func lockTxCancelled(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		give := func(t *testing.T) Tx {
			tx := beginTx(t, a, level)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := c.LockTx(ctx, tx, name)
			is(t, err, dblock.ErrNotAcquired)
			if took := time.Since(began); took > soon/2 {
				t.Errorf("LockTx obeyed its context after %v", took)
			}
			is(t, err, context.DeadlineExceeded)
			return tx
		}
		t.Run("behind a transaction", func(t *testing.T) {
			holder := beginTx(t, a, level)
			lockTx(t, c, holder, name)
			first, second := give(t), give(t)
			if e.wiring.Kind == SQLite { // one at a time can write, whatever it has locked
				commit(t, holder)
			}
			e.usable(t, first)
			e.usable(t, second)
			if e.wiring.Kind != SQLite {
				commit(t, holder)
			}
		})
		t.Run("behind a lease", func(t *testing.T) {
			l := lock(t, other, name)
			e.usable(t, give(t))
			unlock(t, l)
			e.free(t, name)
		})
		tx := beginTx(t, a, level)
		lockTx(t, c, tx, name)
		commit(t, tx)
	})
}

// Broken by whatever locks the gaps between names along with a name: a read with SKIP LOCKED, or of
// a row that is missing.
func lockTxNewNames(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		first, second := beginTx(t, a, level), beginTx(t, a, level)
		lockTx(t, c, first, name+"/1")
		waiting := make(chan error, 1)
		go func() { waiting <- c.LockTx(context.Background(), second, name+"/1") }()
		select {
		case err := <-waiting:
			t.Fatalf("LockTx beside another: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
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
		if e.wiring.Kind == Postgres && level != sql.LevelReadCommitted && errors.Is(err, driver.ErrRetry) {
			rollback(t, second) // its snapshot is older than the row
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		e.usable(t, second)
	})
}

func lockTxEmptyTable(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 8)
	c := e.clientOf(t, a)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for round := range 10 {
				tx, err := a.begin(context.Background(), sql.LevelDefault)
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), soon)
				name := fmt.Sprintf("acc/%d/", round)
				err = c.LockTx(ctx, tx, name+"1", dblock.Also(name+"2"))
				cancel()
				if err == nil {
					err = tx.exec(context.Background(), "INSERT INTO app (n) VALUES (1)")
				}
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if err := tx.commit(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := e.number(t, "SELECT count(*) FROM app"); n != 40 {
		t.Errorf("%d of 40 transactions", n)
	}
}

// Broken by locking in the order given.
func lockTxSorted(t *testing.T, e *env) {
	e.exec(t, "CREATE TABLE app (n integer)")
	clients := []Client{e.client(t), e.client(t)}
	var all sync.WaitGroup
	for i := range 6 {
		a := e.app(t, 4)
		c := e.clientOf(t, a)
		clients = append(clients, c)
		all.Go(func() {
			for round := range 15 {
				tx, err := a.begin(context.Background(), e.levels()[0])
				if err != nil {
					t.Error(err)
					return
				}
				names := []string{"a", "b", "c"}
				first := names[(i+round)%3]
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				err = c.LockTx(ctx, tx, first, dblock.Also(names...))
				cancel()
				if err == nil {
					err = tx.exec(context.Background(), "INSERT INTO app (n) VALUES (1)")
				}
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if err := tx.commit(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := e.number(t, "SELECT count(*) FROM app"); n != 90 {
		t.Errorf("%d of 90 transactions", n)
	}
	_ = clients
}

// Broken by waiting in turns that are shorter than the server needs to find a deadlock.
func lockTxDeadlock(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // the first has locked the database
		return
	}
	e.exec(t, "CREATE TABLE app (n integer)")
	a := e.app(t, 8)
	c := e.clientOf(t, a)
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
	if winner.err != nil {
		t.Fatal(winner.err)
	}
	e.usable(t, txs[winner.i])
}

// Broken by a statement that waits for the row for as long as it is locked.
func noConnectionWaits(t *testing.T, e *env) {
	holder := e.app(t, 5)
	inTx := e.clientOf(t, holder)
	tx := beginTx(t, holder, e.levels()[0])
	lockTx(t, inTx, tx, "n")
	size := 2
	if e.wiring.Kind == MySQL || e.wiring.Kind == MariaDB {
		size = 5
	}
	a := e.app(t, size)
	c := e.clientOf(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting []<-chan outcome
	for range 8 {
		waiting = append(waiting, locking(ctx, c, "n"))
	}
	for began := time.Now(); time.Since(began) < time.Second; { // by then each has tried more than once
		giveBack, err := a.borrow(brief(t))
		if err != nil {
			t.Fatalf("the application gets no connection: %v", err)
		}
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
	a := e.app(t, size)
	c := e.clientOf(t, a)
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
			if err := tx.exec(context.Background(), "INSERT INTO app (n) VALUES (1)"); err != nil {
				t.Error(err)
			}
			if err := tx.commit(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := e.number(t, "SELECT count(*) FROM app"); n != 2*size {
		t.Errorf("%d of %d transactions", n, 2*size)
	}
}

func lockTxAgain(t *testing.T, e *env) {
	a := e.app(t, 8)
	c, other := e.clientOf(t, a), e.client(t)
	e.atEachLevel(t, func(t *testing.T, name string, level sql.IsolationLevel) {
		tx := beginTx(t, a, level)
		lockTx(t, c, tx, name)
		lockTx(t, c, tx, name, dblock.Also(name, name+"+"))
		e.usable(t, tx)

		err := c.Do(t.Context(), name, func(ctx context.Context, l Lock) error {
			tx := beginTx(t, a, level)
			if err := c.TryLockTx(ctx, tx, name); err != nil {
				return fmt.Errorf("under its own lease: %w", err)
			}
			e.usable(t, tx)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		// After its turn in the queue.
		l := lock(t, other, name)
		tx = beginTx(t, a, e.readCommitted())
		locked := make(chan error, 1)
		go func() { locked <- c.LockTx(context.Background(), tx, name) }()
		e.queued(t, name, 1)
		waiting := locking(t.Context(), other, name)
		e.queued(t, name, 2)
		unlock(t, l)
		if err := within(t, soon, "LockTx has its turn", locked); err != nil {
			t.Fatal(err)
		}
		lockTx(t, c, tx, name)
		nested, err := tx.nested(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lockTx(t, c, nested, name) // the same transaction, though its value is another
		e.usable(t, tx)
		unlock(t, granted(t, soon, waiting))
	})
}

// Broken by a lease behind one transaction that counts as every transaction's of the client: each
// goes straight to the row.
func lockTxStream(t *testing.T, e *env) {
	const streams, tickets = 4, 6
	limit, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := e.app(t, streams+9)
	c, other := e.clientOf(t, a), e.client(t)
	first := lock(t, other, "n")
	tx := beginTx(t, a, e.levels()[0])
	locked := make(chan error, 1)
	go func() { locked <- c.LockTx(limit, tx, "n") }()
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
			if n := served.Add(1) - 1; n != i {
				t.Errorf("ticket %d was served after %d others", i, n)
			}
			unlock(t, l)
		})
		e.queued(t, "n", int(i)+2)
	}
	unlock(t, first)
	if err := within(t, soon, "LockTx has its turn", locked); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(limit)
	defer stop()
	begun := make(chan struct{}, streams)
	for range streams {
		all.Go(func() {
			for once := true; ctx.Err() == nil; once = false {
				tx, err := a.begin(context.Background(), e.levels()[0])
				if err != nil {
					t.Error(err)
					return
				}
				if once {
					begun <- struct{}{}
				}
				err = c.LockTx(ctx, tx, "n") // it comes after all tickets
				if err == nil && served.Load() < tickets {
					late.Add(1)
				}
				if err != nil && !errors.Is(err, driver.ErrRetry) && ctx.Err() == nil {
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
	stop()
	all.Wait()
	if n := late.Load(); n > 0 {
		t.Errorf("%d transactions passed leases that were queued before they came", n)
	}
	e.free(t, "n")
}

func lockTxInput(t *testing.T, e *env) {
	a := e.app(t, 5)
	c := e.clientOf(t, a)
	e.exec(t, "CREATE TABLE app (n integer)")
	tx := beginTx(t, a, e.levels()[0])
	for _, try := range []func(context.Context, Tx, string, ...dblock.LockOption) error{c.LockTx, c.TryLockTx} {
		is(t, try(t.Context(), tx, ""), dblock.ErrInvalidName)
		is(t, try(t.Context(), tx, "n", dblock.Also("m", "")), dblock.ErrInvalidName)
		is(t, try(t.Context(), tx, "n", dblock.Lease(time.Minute)), dblock.ErrInvalidOption)
		is(t, try(t.Context(), tx, "n", dblock.Owner("h", "t")), dblock.ErrInvalidOption)
		is(t, try(t.Context(), tx, "n", dblock.Shared()), dblock.ErrUnsupported)
		is(t, try(t.Context(), tx, "n", dblock.Permits(1, 2)), dblock.ErrInvalidOption)
		is(t, try(nil, tx, "n"), dblock.ErrInvalidOption) //nolint:staticcheck // what is tested
	}
	if _, err := c.Lock(t.Context(), "n", dblock.Also("m")); !errors.Is(err, dblock.ErrInvalidOption) {
		t.Errorf("Lock with Also: %v", err)
	}
	e.usable(t, tx)
}
