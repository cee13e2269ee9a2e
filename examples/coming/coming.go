// Package coming shows for users of other lock libraries what their code becomes with dblock: one
// file for each page of docs/coming-from, which quotes it. The tests run it on tables in memory, on
// SQLite, and on the servers that there are.
package coming

import (
	"database/sql"

	"github.com/dblock-go/dblock"
)

// Client is the type of a client over database/sql, and Lock that of its locks.
type (
	Client = dblock.Client[*sql.Tx]
	Lock   = dblock.Lock
)
