package store

import (
	"context"
	"errors"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// full is an engine whose pool has connections left.
type full struct{ driver.Backend }

func (full) Connections() driver.Pool         { return driver.Pool{} }
func (full) DropReadOnly(ctx context.Context) {}

// failures are those of the table in the package comment.
var failures = map[string]error{
	"ErrRetry": driver.ErrRetry, "ErrBusy": driver.ErrBusy, "ErrUnavailable": driver.ErrUnavailable,
	"ErrReadOnly": driver.ErrReadOnly, "ErrDenied, after another answer": driver.ErrDenied,
	"ErrDenied, as the first answer": driver.ErrDenied,
	"ErrInDoubt, with ErrRetry":      driver.Fail(driver.ErrRetry, driver.ErrInDoubt),
	"ErrRefused":                     driver.Refused(errors.New("no")), "ErrNotHeld": driver.ErrNotHeld,
	"ErrNotAcquired": contract.ErrNotAcquired, "no answer within a TTL": context.DeadlineExceeded,
	"the end of the context": context.Canceled, "any other error": errors.New("other"),
}

var row = regexp.MustCompile(`(?m)^//\t(\S.*?)\s{2,}(always|never|in an outage)\s{2,}(nothing|unsure)$`)

// The table in the package comment has every failure, with what Again and ResidueOf make of it.
func TestEveryFailureIsInTheTable(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	rows := row.FindAllStringSubmatch(string(text), -1)
	require.Equal(t, len(rows), len(failures), "rows")
	for _, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			var now time.Duration
			s := New(full{}, Config{TTL: time.Minute, Clock: clock.Func(func() time.Duration { return now })})
			s.hadSession.Store(true)
			s.served.Store(row[1] != "ErrDenied, as the first answer")
			err := s.interpret(t.Context(), t.Context(), failures[row[1]])
			assert.Equal(t, []string{"nothing", "something", "unsure"}[ResidueOf(err)], row[3], "it leaves")
			policy := Policy{First: 1, Longest: 1}
			repeated := "never"
			if s.Tries(policy).Again(t.Context(), err) {
				repeated = "in an outage"
				late := s.Tries(policy)
				now += time.Minute
				if late.Again(t.Context(), err) {
					repeated = "always"
				}
			}
			assert.Equal(t, repeated, row[2], "it is repeated")
		})
	}
}
