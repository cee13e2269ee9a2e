package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/transaction"
)

// trying is a TryLock whose tries take so long and fail with these errors, the last of them for
// ever. It returns how long it has tried, and how often.
func trying(t *testing.T, each time.Duration, failures ...error) (took time.Duration, tries int) {
	began := time.Now()
	s := New(full{}, Config{TTL: time.Minute, Clock: clock.Func(func() time.Duration { return time.Since(began) })})
	s.hadSession.Store(true)
	err := s.Retry(t.Context(), Trying, func() error {
		time.Sleep(each)
		tries++
		return failures[min(tries, len(failures))-1]
	})
	assert.ErrorIs(t, err, failures[len(failures)-1])
	return time.Since(began), tries
}

// Broken by a limit of the number of tries, by one for each kind of failure, and by a last pause
// that ends long after the limit.
func TestATryLockIsBoundedByTime(t *testing.T) {
	for what, failures := range map[string][]error{
		"locked rows": {driver.ErrBusy},
		"lost races":  {driver.ErrRetry},
		"both":        {driver.ErrBusy, driver.ErrRetry, driver.ErrBusy, driver.ErrRetry, driver.ErrBusy},
	} {
		for _, each := range []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				if took, _ := trying(t, each, failures...); took < 500*time.Millisecond+each ||
					took > 500*time.Millisecond+2*each {
					t.Errorf("%s: with tries of %v it took %v", what, each, took)
				}
			})
		}
	}
}

// Broken by an outage that uses up the time for a locked row.
func TestAnOutageDuringATryLockIsNoLockedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := []error{driver.ErrBusy}
		for range 20 {
			failures = append(failures, driver.ErrUnavailable)
		}
		if _, tries := trying(t, 100*time.Millisecond, append(failures, driver.ErrBusy)...); tries < 1+20+2 {
			t.Errorf("it ends after %d tries", tries)
		}
	})
}

// Broken by a call that waits for an effect as long as its context lives: a trigger swallows every
// write.
func TestACallWhoseStatementNeverHasAnEffectEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := New(full{}, Config{TTL: time.Minute, Clock: clock.Func(func() time.Duration { return time.Since(began) })})
		tries := 0
		for _, policy := range []Policy{Patient, Waiting, Trying, Briefly} {
			tries = 0
			err := s.Retry(t.Context(), policy, func() error {
				tries++
				return transaction.ErrUnproven
			})
			require.ErrorIs(t, err, transaction.ErrUnproven)
			assert.Equal(t, tries, mostUnproven, "tries")
		}
		tries = 0
		require.NoError(t, s.Retry(t.Context(), Waiting, func() error { // a KILL QUERY now and then
			switch tries++; {
			case tries%mostUnproven == 0:
				return driver.ErrBusy
			case tries < 3*mostUnproven:
				return transaction.ErrUnproven
			}
			return nil
		}))
	})
}
