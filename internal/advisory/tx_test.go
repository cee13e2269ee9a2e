package advisory

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

func (s *stage) lockTx(tx pgx.Tx, name string, shared, wait bool) bool {
	s.Helper()
	ok, err := lockTx(s.Context(), tx, name, shared, wait)
	require.NoError(s, err, "lock in a transaction")
	s.usable(tx)
	return ok
}

func TestAnAdvisoryLockOfATransactionEndsWithIt(t *testing.T) {
	s := newStage(t)
	pool := s.pool()
	k, other := s.open(pool), s.client()
	for _, level := range levels {
		for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Commit, pgx.Tx.Rollback} {
			tx := s.begun(pool, pgx.TxOptions{IsoLevel: level})
			if !s.lockTx(tx, "n", alone, true) {
				t.Fatal("nobody has it")
			}
			if s.free(k, "n", alone) || s.free(other, "n", shared) {
				t.Error("the transaction does not exclude sessions, those of its own client too")
			}
			waits := s.begin(k, "n", alone, 1)
			require.NoError(t, end(tx, t.Context()))
			p := s.granted(waits)
			tx = s.begun(pool, pgx.TxOptions{IsoLevel: level})
			if s.lockTx(tx, "n", alone, false) || s.lockTx(tx, "n", shared, false) {
				t.Error("sessions do not exclude the transaction")
			}
			waitsTx := s.beginTx(tx, "n", alone, 1)
			s.unlock(p)
			s.granted(waitsTx)
			s.usable(tx)
			s.commit(tx)
			if !s.free(other, "n", alone) {
				t.Error("the transaction is over")
			}
		}
	}
}

func TestSharesOfTransactionsGoTogether(t *testing.T) {
	s := newStage(t)
	pool := s.pool()
	k := s.open(pool)
	a, b := s.begun(pool, pgx.TxOptions{}), s.begun(pool, pgx.TxOptions{})
	if !s.lockTx(a, "n", shared, true) || !s.lockTx(b, "n", shared, false) || !s.free(k, "n", shared) {
		t.Error("a share excludes a share")
	}
	if s.free(k, "n", alone) {
		t.Error("shares do not exclude a client that wants it alone")
	}
	s.commit(a)
	s.commit(b)
}

// Broken by a LockTx that waits for the lock past the queue.
func TestTransactionsAndSessionsAreInOneAdvisoryQueue(t *testing.T) {
	s := newStage(t)
	pool := s.pool()
	one, two := s.open(pool), s.client()
	p := s.lock(one, "n", alone)
	a, b := s.begun(pool, pgx.TxOptions{}), s.begun(pool, pgx.TxOptions{})
	first := s.begin(two, "n", alone, 1)
	second := s.beginTx(a, "n", alone, 2)
	third := s.begin(one, "n", alone, 3)
	fourth := s.beginTx(b, "n", alone, 4)
	if s.lockTx(s.begun(pool, pgx.TxOptions{}), "n", alone, false) {
		t.Error("TryLockTx went past the queue")
	}
	s.unlock(p)
	p = s.granted(first)
	s.still(second, third, fourth)
	s.unlock(p)
	s.granted(second)
	s.still(third, fourth)
	s.commit(a)
	p = s.granted(third)
	s.still(fourth)
	s.unlock(p)
	s.granted(fourth)
	s.commit(b)
}

// Broken by passing the context on to pgx, which closes the connection, and by waiting without a
// savepoint.
func TestATransactionGoesOnWhenItsContextEndedTheWait(t *testing.T) {
	s := newStage(t)
	pool := s.pool()
	k := s.open(pool)
	for _, level := range levels {
		p := s.lock(k, "n", alone)
		tx := s.begun(pool, pgx.TxOptions{IsoLevel: level})
		waits := s.beginTx(tx, "n", alone, 1)
		waits.cancel()
		<-waits.done
		assert.ErrorIs(t, waits.err, context.Canceled)
		s.usable(tx)
		pid := tx.Conn().PgConn().PID()
		assert.Equal(t, s.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1", pid), 0,
			"locks were left on the transaction's connection")
		s.unlock(p)
		if !s.lockTx(tx, "n", alone, true) {
			t.Error("nobody has it")
		}
		s.commit(tx)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tx := s.begun(pool, pgx.TxOptions{})
	assert.ErrorIs(t, assert.ErrOf(lockTx(ended, tx, "n", alone, true)), context.Canceled)
	s.usable(tx)
}

// Broken by letting a request to cancel arrive after LockTx has returned.
func TestALateCancellationDoesNotHitTheCallersNextStatement(t *testing.T) {
	s := newStage(t)
	pool := s.pool()
	k := s.open(pool)
	for range 25 {
		p := s.lock(k, "n", alone)
		tx := s.begun(pool, pgx.TxOptions{})
		waits := s.beginTx(tx, "n", alone, 1)
		go func() {
			// as long as it may take to go over
			for end := time.Now().Add(rand.N(2 * time.Millisecond)); time.Now().Before(end); {
			}
			waits.cancel()
		}()
		s.unlock(p)
		<-waits.done
		s.usable(tx)
		has := s.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1",
			tx.Conn().PgConn().PID())
		switch {
		case waits.err == nil && has == 1:
		case !errors.Is(waits.err, context.Canceled) || has != 0:
			t.Fatalf("%v, with %d locks", waits.err, has)
		}
		s.commit(tx)
	}
}

func TestTheApplicationsTimeoutsEndTheWaitAndNotTheTransaction(t *testing.T) {
	s := newStage(t)
	for setting, kind := range map[string]error{"lock_timeout": driver.ErrBusy,
		"statement_timeout": driver.ErrUnavailable} {
		k := s.client()
		p := s.lock(k, "n", alone)
		holder, tx := s.begun(s.outside, pgx.TxOptions{}), s.begun(s.outside, pgx.TxOptions{})
		limit := func(d string) { // of the wait alone: the machine may be slow
			s.exec(tx, "SET LOCAL "+setting+" = '"+d+"'")
		}
		timesOut := func() {
			limit("50ms")
			if ok, err := lockTx(t.Context(), tx, "n", alone, true); ok || !errors.Is(err, kind) {
				t.Errorf("%s: %v, %v", setting, ok, err)
			}
			limit("0")
			s.usable(tx)
		}
		timesOut()
		s.unlock(p)
		s.lockTx(holder, "n", alone, true)
		timesOut()
		s.commit(holder)
		if !s.lockTx(tx, "n", alone, true) {
			t.Error("nobody has it")
		}
		s.commit(tx)
	}
}

// Broken by queueing behind the waiters for what the transaction has: they would wait for each
// other.
func TestATransactionThatHasTheLockDoesNotWaitForItsWaiters(t *testing.T) {
	s := newStage(t)
	pool := s.pool()
	k := s.open(pool)
	for _, first := range []bool{alone, shared} {
		tx := s.begun(pool, pgx.TxOptions{})
		s.lockTx(tx, "n", first, true)
		waits := s.begin(k, "n", alone, 1)
		if !s.lockTx(tx, "n", alone, true) {
			t.Error("it has it")
		}
		s.still(waits)
		s.commit(tx)
		s.unlock(s.granted(waits))
	}
}

func TestADeadlockOfTransactionsIsSaidAndTheyGoOn(t *testing.T) {
	s := newStage(t)
	pool := s.pool("deadlock_timeout", "50ms")
	a, b := s.begun(pool, pgx.TxOptions{}), s.begun(pool, pgx.TxOptions{})
	s.lockTx(a, "a", alone, true)
	s.lockTx(b, "b", alone, true)
	crossed := make(chan error, 1)
	go func() {
		_, err := lockTx(t.Context(), a, "b", alone, true)
		if err != nil { // let the other one through
			err = errors.Join(err, a.Rollback(t.Context()))
		}
		crossed <- err
	}()
	dbtest.Eventually(s, "it to wait", func() bool { return s.waiters() == 1 || len(crossed) > 0 })
	_, err := lockTx(t.Context(), b, "a", alone, true)
	s.usable(b)
	s.commit(b)
	if other := <-crossed; !errors.Is(err, driver.ErrRetry) && !errors.Is(other, driver.ErrRetry) || err != nil &&
		other != nil {
		t.Errorf("%v; %v", err, other)
	}
	_ = a.Rollback(t.Context())
}

func TestATransactionThatIsOverIsLeftAlone(t *testing.T) {
	s := newStage(t)
	pool := s.pool()
	over := s.begun(pool, pgx.TxOptions{})
	s.commit(over)
	assert.ErrorIs(t, assert.ErrOf(lockTx(t.Context(), over, "n", alone, true)), pgx.ErrTxClosed, "committed")
	tx := s.begun(pool, pgx.TxOptions{})
	s.exec(tx, "SAVEPOINT theirs")
	require.Error(t, require.ErrOf(tx.Exec(t.Context(), "SELECT 1/0")), "1/0")
	if _, err := lockTx(t.Context(), tx, "n", alone, true); pgserver.State(err) != "25P02" {
		t.Errorf("aborted: %v", err)
	}
	s.exec(tx, "ROLLBACK TO theirs")
	s.usable(tx)
}

// hit is a transaction. Requests to cancel hit its first statements.
type hit struct {
	pgx.Tx
	left int
	sent []string
}

func (h *hit) Exec(_ context.Context, sql string, _ ...any) (pgconn.CommandTag, error) {
	what := "unlock"
	if strings.Contains(sql, "pg_sleep") {
		what = "absorb"
	}
	h.sent = append(h.sent, what)
	if h.left--; h.left >= 0 {
		return pgconn.CommandTag{}, &pgconn.PgError{Code: pgserver.QueryCanceled}
	}
	return pgconn.CommandTag{}, nil
}

// Broken by going on while requests to cancel are on their way, and by an unlock that is not
// repeated when one hits it.
func TestRequestsToCancelThatWereNotSeenAreAbsorbedBeforeTheCallerGoesOn(t *testing.T) {
	for _, c := range []struct {
		cancels, arrive int
		want            []string
	}{
		{0, 0, []string{"unlock"}},
		{2, 2, []string{"absorb", "absorb", "unlock"}},
		{2, 0, []string{"absorb", "unlock"}}, // they came to nothing
		{1, 2, []string{"absorb", "unlock", "unlock"}},
	} {
		tx := &hit{left: c.arrive}
		assert.NoError(t, (txLock{tx: tx, key: keysOf("n")}).undo(t.Context(), c.cancels, "pg_advisory_unlock"))
		if !slices.Equal(tx.sent, c.want) {
			t.Errorf("%d requests, %d of which arrive: %v, want %v", c.cancels, c.arrive, tx.sent, c.want)
		}
	}
}
