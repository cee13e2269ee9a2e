package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// killPause is the pause between two KILLs of a statement: one that comes before it is lost.
const killPause = 50 * time.Millisecond

// tag names a connection for as long as the connection lives: it is a named lock that the
// connection holds. The id of a connection is no such name, since a server that restarts begins its
// ids anew, and servers beside each other use the same.
type tag string

func newTag() tag { return tag(rand.Text()) }

// querier is a connection, or a transaction on one.
type querier interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}

// tie gives the tag to a connection.
func (t tag) tie(ctx context.Context, on querier) error {
	var got sql.NullInt64
	if err := on.QueryRowContext(ctx, "SELECT GET_LOCK('dblock:"+string(t)+"', 0)").Scan(&got); err != nil {
		return interpret(err)
	}
	if got.Int64 != 1 {
		return driver.Fail(driver.ErrConfig, errNoNamedLocks)
	}
	return nil
}

// untie takes the tag away again. A KILL that came late may hit this statement, which then is
// repeated.
func (t tag) untie(ctx context.Context, on querier) error {
	for {
		var gave sql.NullInt64
		if err := on.QueryRowContext(ctx, "SELECT RELEASE_LOCK('dblock:"+string(t)+"')").Scan(&gave); !wasKilled(err) {
			return err
		}
	}
}

// interruptible runs a statement of the caller's transaction that may wait for long, and has the
// server end it when ctx does: the driver would end the connection, and the transaction with it.
// quiet outlives ctx. An error that is not of the interruption comes as it is: it may have ended
// the transaction.
//
// No KILL is sent any more when it returns, and one that the network has kept finds no connection:
// the tag is gone.
func interruptible(ctx, quiet context.Context, tx *sql.Tx, aside driver.Aside, statement func() error) error {
	t := newTag()
	if err := t.tie(quiet, tx); err != nil {
		return fmt.Errorf("to wait so that the wait can be interrupted takes a named lock (GET_LOCK): %w", err)
	}
	over, asked := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		for {
			_ = aside(context.WithoutCancel(ctx), func(ctx context.Context, up driver.Upkeep) error {
				select {
				case <-over:
					return nil
				default:
					return kill(ctx, up.(upkeep).conn, "QUERY", string(t))
				}
			})
			select {
			case <-over:
				return
			case <-time.After(killPause):
			}
		}
	})
	err := statement()
	close(over)
	cut := !stop()
	if cut {
		<-asked
	}
	if number(err) == 0 && err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err // the connection is gone, and the tag with it
	}
	if second := t.untie(quiet, tx); second != nil {
		return errors.Join(err, second)
	}
	if cut && wasKilled(err) {
		return errors.Join(ctx.Err(), err)
	}
	return err
}
