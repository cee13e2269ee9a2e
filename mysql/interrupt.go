package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// killPause is the pause between two KILLs of a statement: one that comes before it is lost.
const killPause = 50 * time.Millisecond

// interruptible runs a statement of the caller's transaction that may wait for long, and has the
// server end it when ctx does: the driver would end the connection, and the transaction with it.
// quiet outlives ctx. An error that is not of the interruption comes as it is: it may have ended
// the transaction.
//
// No KILL is sent any more when it returns, and one that the network has kept finds no connection:
// the tag is gone.
func interruptible(ctx, quiet context.Context, tx *sql.Tx, onSideConn driver.OnSideConn, statement func() error) error {
	t := mysqlserver.NewTag()
	if err := t.Tie(quiet, tx); err != nil {
		return fmt.Errorf("to wait so that the wait can be interrupted takes a named lock (GET_LOCK): %w", err)
	}
	over, asked := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		for {
			_ = onSideConn(context.WithoutCancel(ctx), func(ctx context.Context, up driver.Upkeep) error {
				select {
				case <-over:
					return nil
				default:
					return mysqlserver.Kill(ctx, up.(upkeep).conn, "QUERY", string(t))
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
	if mysqlserver.Number(err) == 0 && err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err // the connection is gone, and the tag with it
	}
	if second := t.Untie(quiet, tx); second != nil {
		return driver.Join(err, second)
	}
	if cut && mysqlserver.WasKilled(err) {
		return driver.Join(ctx.Err(), err)
	}
	return err
}
