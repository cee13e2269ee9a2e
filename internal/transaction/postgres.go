package transaction

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// Each text is one round trip: without parameters the drivers send several statements at once.
const (
	// enter takes the milliseconds until the caller's deadline, 0 where there is none.
	enter = `SAVEPOINT dblock;
SELECT set_config('dblock.patience', current_setting('lock_timeout'), true);
SELECT set_config('lock_timeout', least(nullif(` + lockTimeout + `, 0), nullif(%d, 0),
       (extract(epoch FROM current_setting('deadlock_timeout')::interval) * 1000)::bigint + 250)::text, true)`
	leave = `SELECT set_config('lock_timeout', current_setting('dblock.patience'), true);
RELEASE SAVEPOINT dblock`
	undo = `ROLLBACK TO SAVEPOINT dblock;
RELEASE SAVEPOINT dblock`

	lockTimeout = `(extract(epoch FROM current_setting('lock_timeout')::interval) * 1000)::bigint`
)

const (
	lockNotAvailable = "55P03"
	undefinedTable   = "42P01"
)

var postgres = engine{
	work: func(w Work) func(context.Context, Queries) error { return w.Postgres },
	run:  runPostgres,
	missing: func(_ context.Context, _ Queries, _ string, err error) bool {
		return SQLState(err) == undefinedTable
	},
	place: `SELECT 'database "' || current_database() || '", schema "' ||
		array_to_string(current_schemas(false), '", "') || '"'`,
}

// runPostgres undoes every error with a savepoint. That also releases a row that a refused step has
// locked.
func runPostgres(ctx, quiet context.Context, q Queries, work func(context.Context, Queries) error) error {
	try := func() error {
		if err := q.Exec(quiet, fmt.Sprintf(enter, millisecondsLeft(ctx))); err != nil {
			return err // there is no savepoint to return to: the caller's transaction was aborted before
		}
		err := work(quiet, q)
		if err == nil {
			return q.Exec(quiet, leave)
		}
		if second := q.Exec(quiet, undo); second != nil && SQLState(err) == "" {
			return driver.Join(err, second) // one error is enough for a broken connection
		}
		return err
	}
	ended := func(err error) bool { return SQLState(err) == lockNotAvailable }
	patience := func() (time.Duration, error) { // the caller's own setting, which undo has restored
		var ms int64
		_, err := q.Row(quiet, "SELECT "+lockTimeout, nil, &ms)
		return time.Duration(ms) * time.Millisecond, err
	}
	return turns(ctx, try, ended, patience)
}

// millisecondsLeft rounds up, so that the deadline has passed when a turn of that length ends.
func millisecondsLeft(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(1, int64((time.Until(deadline)+time.Millisecond)/time.Millisecond))
}
