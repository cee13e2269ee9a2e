package election

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/testlog"
	"github.com/dblock-go/dblock/observe"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// A statement is repeated when its answer was lost, and may have written the event of a term twice.
func TestATermWhoseEventWasWrittenTwiceIsToldOnce(t *testing.T) {
	client := dblocktest.New[*sql.Tx](t).Client
	lock, err := client.Lock(t.Context(), "n")
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, lock.Record(t.Context(), elected, ""))
	}
	var told []int64
	o := observer{inspector: inspect.New(client), name: "n", begun: true, yield: func(l Leader) bool {
		told = append(told, l.Token)
		return true
	}}
	if err := o.read(t.Context()); err != nil || len(told) != 1 || told[0] != lock.Token() {
		t.Errorf("told of %d, %v", told, err)
	}
	assert.NoError(t, lock.Unlock(t.Context()))
}

// Broken by an election that waits for the observer, or for the log.
func TestElectionsGoOnBesideALoggerAndAnObserverThatBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		t.Cleanup(func() { close(end) })
		f := dblocktest.New[*sql.Tx](t, dblock.WithLogger(testlog.Stuck(end)), dblock.WithObserver(observe.Observer{
			AcquireEnd: func(context.Context, observe.Attempt, observe.AcquireResult) { <-end },
			HoldEnd:    func(observe.HoldResult) { <-end },
		}))
		ctx, cancel := context.WithCancel(t.Context())
		var campaigns sync.WaitGroup
		terms := make(chan int64, 9)
		for range 2 {
			campaigns.Go(func() {
				err := New(f.Client).Campaign(ctx, "n", func(ctx context.Context, term *Term) error {
					terms <- term.Token()
					<-ctx.Done()
					return nil
				})
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		f.LoseName(t, "n")
		synctest.Wait()
		if len(terms) != 2 {
			t.Errorf("%d terms began, want the second after the first was lost", len(terms))
		}
		cancel()
		campaigns.Wait()
	})
}

// The next campaign of a client may win before the last one deletes its own term.
func TestATermThatIsOverLeavesTheNextOneOnTheBooks(t *testing.T) {
	client := dblocktest.New[*sql.Tx](t).Client
	lock, err := client.Lock(t.Context(), "n")
	require.NoError(t, err)
	elections := New(client)
	last, next := &Term{lock: lock}, &Term{lock: lock}
	elections.enter(last)
	elections.enter(next)
	elections.leave(last)
	assert.Equal(t, elections.term("n"), next, "the next term is not found")
	if elections.leave(next); elections.term("n") != nil {
		t.Error("a term that is over is found")
	}
}
