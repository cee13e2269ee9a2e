package gocronlock_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/dblock-go/dblock"
	gocronlock "github.com/dblock-go/dblock/contrib/gocron"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

const leaders = "scheduler"

func elector(t *testing.T, c *dblock.Client[*sql.Tx]) *gocronlock.Elector {
	e, err := gocronlock.NewElector(c, leaders)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close(context.Background())) })
	return e
}

func leads(e *gocronlock.Elector) func() bool {
	return func() bool { return e.IsLeader(context.Background()) == nil }
}

func TestTheNextLeadsWhenTheTasksOfTheLastHaveReturned(t *testing.T) {
	file := file(t)
	first := elector(t, client(t, file))
	until(t, leads(first))
	second := elector(t, client(t, file))
	began, ended, finish := make(chan int64, 1), make(chan struct{}), make(chan struct{})
	s := scheduler(t, gocron.WithDistributedElector(first))
	now(t, s, first.Task(func(ctx context.Context, token int64) error {
		began <- token
		<-ctx.Done()
		close(ended)
		<-finish
		return nil
	}))
	token := receive(t, began)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, first.Close(short), context.DeadlineExceeded, "Close said")
	receive(t, ended)
	if leads(first)() || leads(second)() {
		t.Error("somebody leads while a task of the last leader runs")
	}
	assert.ErrorIs(t, first.Task(nothing)(t.Context()), election.ErrNotLeader, "a task that came too late")
	close(finish)
	until(t, leads(second))
	err := second.Task(func(_ context.Context, next int64) error {
		if next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		return nil
	})(t.Context())
	assert.NoError(t, err)
}

func nothing(context.Context, int64) error { return nil }

func TestATaskIsToldThatItsTermIsLost(t *testing.T) {
	file := file(t)
	e := elector(t, client(t, file))
	until(t, leads(e))
	causes := make(chan error, 1)
	began := make(chan struct{})
	s := scheduler(t, gocron.WithDistributedElector(e))
	now(t, s, e.Task(func(ctx context.Context, _ int64) error {
		close(began)
		<-ctx.Done()
		if leads(e)() {
			t.Error("it leads although its term is lost")
		}
		causes <- context.Cause(ctx)
		return nil
	}))
	receive(t, began)
	if n, err := client(t, file).Break(t.Context(), leaders, "test"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	assert.ErrorIs(t, receive(t, causes), dblock.ErrLost, "the cause is")
	until(t, leads(e)) // it stands again
}

func TestACandidateThatCannotStandTriesAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "empty.db")
	db := open(t, name)
	c, err := dblock.New(sqlite.New(db))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	e := elector(t, c)
	until(t, func() bool {
		err := e.IsLeader(t.Context())
		return errors.Is(err, election.ErrNotLeader) && errors.Is(err, dblock.ErrSchema)
	})
	require.NoError(t, migrate.Up(t.Context(), db, migrate.SQLite))
	until(t, leads(e))
}

func TestAnElectorWhoseClientIsClosedGivesUp(t *testing.T) {
	c := client(t, file(t))
	e, err := gocronlock.NewElector(c, leaders)
	require.NoError(t, err)
	until(t, leads(e))
	require.NoError(t, c.Close(t.Context()))
	until(t, func() bool { return errors.Is(e.IsLeader(t.Context()), dblock.ErrClosed) })
	assert.ErrorIs(t, e.Close(t.Context()), dblock.ErrClosed)
}
