package advisory

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// cancellable runs statements that may wait. When ctx ends, it asks the server repeatedly to cancel
// them until they have ended, so that the connection survives. Statements that have not ended after
// the grace break the connection. cancels is the number of requests. When cancellable returns, no
// request is in flight.
func cancellable(
	ctx context.Context, conn *pgconn.PgConn, run func(ctx context.Context) error,
) (cancels int, err error) {
	work, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	ended, asked := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(asked)
		limit, cancel := context.WithTimeout(work, transaction.Grace)
		defer cancel()
		for next := time.NewTimer(0); ; next.Reset(pgserver.CancelInterval) {
			select {
			case <-ended:
				return
			case <-limit.Done():
				giveUp()
				return
			case <-next.C:
				cancels++
				_ = conn.CancelRequest(limit)
			}
		}
	})
	err = run(work)
	close(ended)
	if !stop() {
		<-asked
	}
	return cancels, err
}
