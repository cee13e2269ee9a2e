// Package orm shows dblock beside gorm, bun, sqlx, ent and lib/pq: how a client gets the library's
// *sql.DB, and how LockTx and Guard get its *sql.Tx. docs/orm.md quotes it. The tests run it on
// SQLite, and on PostgreSQL if DBLOCK_TEST_POSTGRES_DSN names a server.
package orm

import (
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock"
)

// Engine is postgres.NewSQL, mysql.New or sqlite.New.
type Engine func(db *sql.DB) dblock.Engine[*sql.Tx]

// Client is the type of a client over database/sql, and Lock that of its locks.
type (
	Client = dblock.Client[*sql.Tx]
	Lock   = dblock.Lock
)

// Account is a row of the application.
type Account struct {
	ID      string `gorm:"primaryKey" bun:",pk"`
	Balance int64
}

// ErrFunds is the error of a withdrawal that exceeds the balance.
var ErrFunds = errors.New("not enough money")
