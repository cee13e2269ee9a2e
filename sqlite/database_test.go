package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestATransactionEndsHoweverItsCallerDoes(t *testing.T) {
	failure := errors.New("failure")
	for way, do := range map[string]struct {
		fail    func(e *engine) error
		refused string
		closed  int
	}{
		"the caller fails": {fail: func(e *engine) error {
			return e.db.write(t.Context(), func(context.Context, *sqlitedb.Queries) error { return failure })
		}},
		"the caller panics": {fail: func(e *engine) (err error) {
			defer func() { err = recover().(error) }()
			return e.db.write(t.Context(), func(context.Context, *sqlitedb.Queries) error { panic(failure) })
		}},
		"the commit fails": {refused: "COMMIT", fail: func(e *engine) error {
			return e.db.write(t.Context(), func(context.Context, *sqlitedb.Queries) error { return nil })
		}},
		"somebody ended the transaction": {fail: func(e *engine) error {
			return e.db.withConn(t.Context(), 0, asSet, func(ctx context.Context, conn *sql.Conn) error {
				return e.db.transact(ctx, ctx, conn, 0, func(ctx context.Context, _ *sqlitedb.Queries) error {
					_, err := conn.ExecContext(ctx, "ROLLBACK")
					return errors.Join(failure, err)
				})
			})
		}},
		"it cannot be ended": {refused: "ROLLBACK", closed: 1, fail: func(e *engine) error {
			return e.db.write(t.Context(), func(context.Context, *sqlitedb.Queries) error { return failure })
		}},
	} {
		t.Run(way, func(t *testing.T) {
			f, e := onFake(t)
			f.refused = do.refused
			if err := do.fail(e); !errors.Is(err, failure) && !errors.Is(err, errRefused) {
				t.Fatalf("%v", err)
			}
			assert.Equal(t, f.Closed, do.closed, "connections were thrown away")
			if f.inside && f.Closed == 0 {
				t.Error("the connection is in the pool, inside a transaction")
			}
			if len(e.db.turn) > 0 {
				t.Error("nobody else gets a turn")
			}
		})
	}
}

// Broken by counting the wait for the engine's own writers.
func TestWhoeverDoesNotWaitIsPatientWithTheEnginesOwnWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := database{turn: make(chan struct{}, 1)}
		d.turn <- struct{}{} // as many that follow each other
		done := make(chan error, 1)
		go func() { done <- d.await(t.Context(), briefly) }()
		time.Sleep(time.Hour)
		select {
		case err := <-done:
			t.Fatalf("it gave up: %v", err)
		default:
		}
		<-d.turn
		require.NoError(t, <-done)
		d.stuck.Store(int64(time.Since(epoch))) // they find the database busy from now on
		began := time.Now()
		require.ErrorIs(t, d.await(t.Context(), briefly), driver.ErrBusy)
		if waited := time.Since(began); waited <= briefly || waited > 2*briefly {
			t.Errorf("it waited for %v", waited)
		}
	})
}

func TestAListenerIsToldThatItsSessionMayWait(t *testing.T) {
	f, e := onFake(t)
	f.refused = "COMMIT"
	for what, call := range map[string]func() error{
		"a place in a queue": func() error {
			err := e.write(t.Context(), writing{}, func(context.Context, *writer) (changed, error) {
				return changed{joined: []string{t.Name()}}, nil
			})
			return err
		},
		"Watch": func() error { return e.Watch(t.Context(), t.Name(), "n", "w") },
	} {
		b := addNotifier(t.Name())
		require.ErrorIs(t, call(), errRefused, what)
		select {
		case <-b.waits: // after an error too: the commit may have been made
		default:
			t.Errorf("%s: it rests", what)
		}
		b.remove(t.Name())
	}
}

// A reader that waits for us must get its turn. New readers are kept out while a commit is tried.
func TestACommitIsTriedAgainForASecondAndThenGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, e := onFake(t)
		f.refused, f.refusal = "COMMIT", &method{sqliteBusy} // readers are in the way
		ctx, cancel := context.WithTimeout(t.Context(), commitTimeout-1)
		defer cancel()
		began := time.Now()
		write := func(context.Context, *sqlitedb.Queries) error { return nil }
		if err := e.db.write(ctx, write); !errors.Is(err, context.DeadlineExceeded) ||
			time.Now().Before(began.Add(commitTimeout-1)) {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if n := len(f.ran); n < 10 || !slices.Equal(slices.Compact(f.ran), []string{"BEGIN IMMEDIATE", "COMMIT",
			"ROLLBACK"}) {
			t.Errorf("%d statements: %q", n, slices.Compact(f.ran))
		}

		f.ran = nil
		ctx, cancel = context.WithTimeout(t.Context(), commitTimeout+4*longestPause)
		defer cancel()
		_ = e.db.write(ctx, write)
		want := []string{"BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"}
		if got := slices.Compact(f.ran); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Broken by heartbeats that have a turn: a client with much to write would lose its locks by that.
func TestAHeartbeatDoesNotQueueBehindTheClientsOwnWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, e := onFake(t)
		e.db.turn <- struct{}{} // a writer that waits for the database
		up, err := e.Upkeep(t.Context(), "s")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := up.Heartbeat(ctx, "s", time.Hour); errors.Is(err, context.DeadlineExceeded) || len(f.ran) == 0 {
			t.Errorf("%v, after %q", err, f.ran)
		}
	})
}

func TestPausesAreShortUntilATransactionHasLastedForLong(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var b backoff
	for waited := time.Duration(0); waited < time.Second; waited += b.pause {
		b.lengthen(now.Add(waited))
		if b.pause < firstPause || b.pause > longestPause || b.pause > max(shortPause, waited/pauseRatio) {
			t.Fatalf("a pause of %v after %v", b.pause, waited)
		}
	}
	if b.pause != longestPause {
		t.Errorf("a pause of %v after a second", b.pause)
	}
}

// The clock goes in steps of a millisecond, within which a name can be granted more than once.
func TestATokenOfTheClocksNextStepMustLast(t *testing.T) {
	const now = 1_700_000_000_000_000
	for token, want := range map[int64]bool{now: false, now + 1: false, now + 999: false, now + 1000: true} {
		if mustLast(token, now, 0) != want {
			t.Errorf("token %d at %d: %v", token, int64(now), !want)
		}
	}
	if !mustLast(now, now, time.Second) {
		t.Error("a rest can be lost")
	}
}
