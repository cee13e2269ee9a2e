package mysql

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
)

// rowQueues lets the goroutines of one engine reach a name's row one after the other. Without
// rowQueues they find the row locked by each other and retry at random: with eight readers of one
// name most of the time, and sometimes in vain. It is not a lock: after the timeout for a locked
// row a goroutine goes on regardless, so a connection that hangs blocks no other.
type rowQueues struct {
	mu   sync.Mutex // guards list
	list map[string]*rowQueue
}

type rowQueue struct {
	taken chan struct{} // full while a goroutine has the turn; served in order of arrival
	users int           // the goroutines that have the turn or wait for it; guarded by rowQueues.mu
}

// await returns when the caller has its turn, timeout has passed, or ctx has ended. The caller must
// call done.
func (t *rowQueues) await(ctx context.Context, name string, timeout time.Duration) (done func()) {
	t.mu.Lock()
	if t.list == nil {
		t.list = map[string]*rowQueue{}
	}
	mine := t.list[name]
	if mine == nil {
		mine = &rowQueue{taken: make(chan struct{}, 1)}
		t.list[name] = mine
	}
	mine.users++
	t.mu.Unlock()

	var had bool
	select {
	case mine.taken <- struct{}{}:
		had = true
	default:
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case mine.taken <- struct{}{}:
			had = true
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return func() {
		if had {
			<-mine.taken
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.list, name)
		}
	}
}

// transactAtWith is transactWith for work that begins with the lock of a name's row.
func (e *engine) transactAtWith(
	ctx context.Context, name string, work func(db mysqldb.DBTX) (wake []string, err error),
) error {
	defer e.rowQueues.await(ctx, name, e.rowTimeout)()
	return e.transactWith(ctx, work)
}
