package client

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// Broken by a Break that waits for a client which hangs: the name would be free no sooner than the
// TTL is over.
func TestBreakTakesALockThatIsPassedOnFromAClientThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := dblocktest.New[*sql.Tx](t)
		operator := f.Another(t)
		before, err := operator.Client.Lock(t.Context(), "n")
		require.NoError(t, err)
		held := make(chan *dblock.Lock)
		lock := func() {
			if l, err := f.Client.Lock(t.Context(), "n"); err == nil {
				held <- l
			}
		}
		go lock()
		synctest.Wait()
		require.NoError(t, before.Unlock(t.Context()))
		first := <-held
		for range 3 { // they gather while the lock is held
			go lock()
		}
		time.Sleep(time.Second)
		require.NoError(t, first.Unlock(t.Context()))
		<-held
		f.Down()
		began := time.Now()
		n, err := operator.Client.Break(t.Context(), "n", "its process hangs")
		assert.NoError(t, err)
		if took := time.Since(began); n != 1 || took < 2*time.Second || took > 5*time.Second {
			t.Errorf("%d holders after %v", n, took)
		}
		l, err := operator.Client.TryLock(context.Background(), "n")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(t.Context()))
		f.Up()
		for range 2 {
			require.NoError(t, (<-held).Unlock(t.Context()))
		}
	})
}
