package transaction

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// A turn is one second, the shortest possible. MySQL accepts an integer of one signedness only.
const (
	borrowTimeout = "SET @dblock_patience = CAST(@@SESSION.innodb_lock_wait_timeout AS SIGNED), SESSION innodb_lock_wait_timeout = " +
		"CAST(IF(@@GLOBAL.innodb_rollback_on_timeout, @@SESSION.innodb_lock_wait_timeout, 1) AS SIGNED)"
	restoreTimeout = "SET SESSION innodb_lock_wait_timeout = @dblock_patience"
)

// Hex is a name as it travels, in hexadecimal digits, which are the same in every character set.
// PostgreSQL takes the bytes of a parameter for those of client_encoding. Statements read the digits
// as convert_from(decode($1, 'hex'), 'UTF8').
//
// MySQL and MariaDB read them as UNHEX(CONVERT(? USING latin1)). A name itself, as string or []byte,
// is a parameter of character_set_client, which the server converts to character_set_connection
// before anything else can be done with it; no CAST takes that back. The CONVERT is for character
// sets of more than one byte (ucs2, utf16, utf32).
func Hex(name string) string { return hex.EncodeToString([]byte(name)) }

const (
	lockWaitTimeout = 1205
	noSuchTable     = 1146
)

var mysql = engine{
	work: func(w Work) func(context.Context, Queries) error { return w.MySQL },
	run:  runMySQL,
	missing: func(_ context.Context, _ Queries, _ string, err error) bool {
		return mysqlNumber(err) == noSuchTable
	},
}

// runMySQL has no use for a savepoint. An error rolls back its statement alone, a deadlock the
// whole transaction. A savepoint would not release row locks either.
func runMySQL(ctx, quiet context.Context, q Queries, work func(context.Context, Queries) error) (err error) {
	if err := q.Exec(quiet, borrowTimeout); err != nil {
		return err
	}
	defer func() { // the setting is the session's, which outlives the transaction
		if second := q.Exec(quiet, restoreTimeout); err == nil {
			err = second
		} else if second != nil && mysqlNumber(err) != 0 {
			err = driver.Join(err, second)
		}
	}()
	ended := func(err error) bool { return mysqlNumber(err) == lockWaitTimeout }
	patience := func() (time.Duration, error) {
		var seconds int64
		_, err := q.Row(quiet, "SELECT @dblock_patience", nil, &seconds)
		return time.Duration(seconds) * time.Second, err
	}
	return turns(ctx, func() error { return work(quiet, q) }, ended, patience)
}
