package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/optimistic"
)

// after returns a function that fails with one error, so many times.
func after(n int, err error, calls *int) func(context.Context) error {
	return func(context.Context) error {
		if *calls++; *calls > n {
			return nil
		}
		return err
	}
}

var errConflict = fmt.Errorf("sold: %w", &optimistic.ConflictError{Name: "a", Version: 3})

func TestRetryRepeatsWhatLostARace(t *testing.T) {
	for name, err := range map[string]error{
		"a conflict":              errConflict,
		"among others":            errors.Join(errors.New("x"), errConflict),
		"serialization failure":   fmt.Errorf("x: %w", &pgconn.PgError{Code: "40001"}),
		"deadlock on PostgreSQL":  &pgconn.PgError{Code: "40P01"},
		"deadlock on MySQL":       errors.Join(sql.ErrTxDone, &mysql.MySQLError{Number: 1213}),
		"lock wait on MySQL":      fmt.Errorf("x: %w", &mysql.MySQLError{Number: 1205}),
		"stale snapshot, MariaDB": &mysql.MySQLError{Number: 1020},
		"dblock's own":            fmt.Errorf("dblock: locktx: %w", optimistic.ErrRetry),
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			if got := optimistic.Retry(t.Context(), after(4, err, &calls)); got != nil || calls != 5 {
				t.Errorf("%s: %d calls, %v", name, calls, got)
			}
		})
	}
}

func TestRetryReturnsEverythingElseAsItIs(t *testing.T) {
	for name, err := range map[string]error{
		"the application's":    errors.New("no seats left"),
		"a unique violation":   &pgconn.PgError{Code: "23505"},
		"a duplicate key":      &mysql.MySQLError{Number: 1062},
		"a number like theirs": numbered{1213},
		"a code like SQLite's": coded{5},
		"the context's":        context.Canceled,
		"bad input":            optimistic.Bump(t.Context(), nil, "a", 1),
	} {
		calls := 0
		if got := optimistic.Retry(t.Context(), after(9, err, &calls)); got != err || calls != 1 {
			t.Errorf("%s: %d calls, %v", name, calls, got)
		}
	}
}

type numbered struct{ Number uint16 }

func (n numbered) Error() string { return fmt.Sprint("number ", n.Number) }

type coded struct{ code int }

func (c coded) Error() string { return fmt.Sprint("code ", c.code) }
func (c coded) Code() int     { return c.code }

func TestRetryGivesUpAndSaysAfterHowManyAttempts(t *testing.T) {
	for _, c := range []struct {
		options []optimistic.Option
		want    int
	}{{nil, 10}, {[]optimistic.Option{optimistic.Attempts(3)}, 3}, {[]optimistic.Option{optimistic.Attempts(1)}, 1}} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := optimistic.Retry(t.Context(), after(99, errConflict, &calls), c.options...)
			if calls != c.want || !errors.Is(err, optimistic.ErrConflict) || !strings.Contains(err.Error(),
				fmt.Sprintf("after %d attempts", c.want)) {
				t.Errorf("%d calls: %v", calls, err)
			}
		})
	}
}

// Each pause is random, up to a bound that doubles until the longest.
func TestPausesDoubleAndAreJittered(t *testing.T) {
	const turns = 200
	var longest, shortest [8]time.Duration
	for turn := range turns {
		synctest.Test(t, func(t *testing.T) {
			last, calls := time.Now(), -1
			err := optimistic.Retry(t.Context(), func(context.Context) error {
				if calls++; calls > 0 {
					pause := time.Since(last)
					longest[calls-1] = max(longest[calls-1], pause)
					if turn == 0 || pause < shortest[calls-1] {
						shortest[calls-1] = pause
					}
				}
				last = time.Now()
				return errConflict
			}, optimistic.Attempts(9), optimistic.Backoff(10*time.Millisecond, 100*time.Millisecond))
			assert.Error(t, err)
		})
	}
	bound := 10 * time.Millisecond
	for i := range longest {
		if longest[i] > bound || longest[i] < bound*8/10 || shortest[i] > bound*2/10 {
			t.Errorf("pause %d was between %v and %v, want anything up to %v", i+1, shortest[i], longest[i], bound)
		}
		bound = min(2*bound, 100*time.Millisecond)
	}
}

func TestTheContextEndsRetryWithItsCauseAndTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		calls := 0
		err := optimistic.Retry(ctx, after(1<<30, errConflict, &calls), optimistic.Attempts(1<<30))
		if !errors.Is(err, cause) || !errors.Is(err, optimistic.ErrConflict) || !strings.Contains(err.Error(),
			fmt.Sprintf("after %d attempts", calls)) {
			t.Error(err)
		}
		calls = 0
		if err := optimistic.Retry(ctx, after(9, errConflict, &calls)); !errors.Is(err, context.Canceled) ||
			calls != 0 {
			t.Errorf("%d calls with a context that had ended: %v", calls, err)
		}
	})
}

func TestWrongOptionsAreRefusedBeforeTheFirstAttempt(t *testing.T) {
	calls := 0
	fn := after(9, nil, &calls)
	for _, option := range []optimistic.Option{
		optimistic.Attempts(0), optimistic.Attempts(-1), optimistic.Backoff(0, time.Second),
		optimistic.Backoff(-1, time.Second),
		optimistic.Backoff(2*time.Second, time.Second), optimistic.Backoff(time.Second, 2*time.Hour),
	} {
		if err := optimistic.Retry(t.Context(), fn, option); !errors.Is(err, optimistic.ErrInvalid) || calls != 0 {
			t.Errorf("%d calls, %v", calls, err)
		}
	}
	assert.ErrorIs(t, optimistic.Retry(t.Context(), nil), optimistic.ErrInvalid)
}
