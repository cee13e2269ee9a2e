package mysql

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
)

// rowQueues lets the goroutines of one engine go to a name's row one after the other. Otherwise
// they find it locked by each other, and come back to it at random: with eight readers of one name
// most of the time, and some in vain. It is a courtesy, not a lock: a goroutine that has waited as
// long as for a locked row goes on regardless, so that a connection that hangs holds up no other.
type rowQueues struct {
	mu   sync.Mutex // of list
	list map[string]*rowQueue
}

type rowQueue struct {
	taken chan struct{} // full while a goroutine has it; goroutines get it in the order in which they came
	users int           // how many have it or wait for it; protected by rowQueues.mu
}

// await returns when it is the caller's turn, or it has waited for long enough, or ctx has ended.
// The caller must call done.
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

// transactAt is transact for work that begins with the lock of a name's row.
func (e *engine) transactAt(
	ctx context.Context, name string, work func(q *mysqldb.Queries) (wake []string, err error),
) error {
	return e.transactAtWith(ctx, name, func(db mysqldb.DBTX) ([]string, error) { return work(mysqldb.New(db)) })
}

// transactAtWith is transactAt for work with statements that sqlc does not know.
func (e *engine) transactAtWith(
	ctx context.Context, name string, work func(db mysqldb.DBTX) (wake []string, err error),
) error {
	defer e.rowQueues.await(ctx, name, e.rowTimeout)()
	return e.transactWith(ctx, work)
}
