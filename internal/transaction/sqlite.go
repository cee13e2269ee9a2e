package transaction

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// firstPause and longestPause bound the wait between two tries. A try is a call within the
	// process.
	firstPause   = 100 * time.Microsecond
	longestPause = 5 * time.Millisecond
)

const (
	sqliteError        = 1
	sqliteBusy         = 5
	sqliteLocked       = 6
	sqliteReadOnly     = 8
	sqlitePrimaryKey   = 19 | 6<<8 // there is a row with the key
	sqliteUnique       = 19 | 8<<8
	sqliteBusySnapshot = sqliteBusy | 2<<8
)

var sqlite = engine{
	work: func(w Work) func(context.Context, Queries) error { return w.SQLite },
	run:  runSQLite,
	missing: func(ctx context.Context, q Queries, table string, err error) bool {
		if code, ok := sqliteCode(err); !ok || code != sqliteError { // the code of any mistake in a statement
			return false
		}
		var n int
		_, err = q.Row(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", []any{table}, &n)
		return err == nil && n == 0
	},
	place: `SELECT 'file "' || file || '"' FROM pragma_database_list WHERE name = 'main'`,
}

// runSQLite waits for the write lock as long as the caller's busy_timeout allows. If the
// transaction has neither read nor written, SQLite itself waits, and ctx does not end that wait.
// Otherwise SQLite answers at once, and runSQLite retries until ctx ends. It does not wait when the
// snapshot is stale, since waiting cannot renew it.
func runSQLite(ctx, _ context.Context, q Queries, work func(context.Context, Queries) error) error {
	quiet := context.WithoutCancel(ctx) // there is no connection to break
	var ms int64
	if _, err := q.Row(quiet, "PRAGMA busy_timeout", nil, &ms); err != nil {
		return err
	}
	if err := OpenSQLite(quiet, q); err != nil {
		return err
	}
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := work(quiet, q)
		code, _ := sqliteCode(err)
		if kind := code & 0xff; kind != sqliteBusy && kind != sqliteLocked || code == sqliteBusySnapshot ||
			ctx.Err() == nil && !time.Now().Before(end) {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("another transaction is in the way: %w: %w", ctx.Err(), err)
		}
	}
}
