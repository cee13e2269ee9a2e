// Package postgres keeps dblock's locks in tables of PostgreSQL 13 or newer.
//
// Each transition is one batch: begin, lock the name's row, decide in later statements, commit. Over pgx a batch is
// one round trip, so that no client stopped in the middle can keep a name's row locked. Grants are announced with
// NOTIFY on a channel of the waiter's session.
package postgres

import (
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/driver"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// New keeps locks through the application's pgx pool. The pool stays the application's: dblock never closes it, and
// opens two connections beside it, with the pool's own configuration and hooks: one for heartbeats, and one to
// listen for wake-ups while somebody waits. Run migrate.Up or the files of package migrations first.
func New(pool *pgxpool.Pool) driver.Engine[pgx.Tx] {
	return driver.Engine[pgx.Tx]{Backend: &engine{db: pgxDB{pool}}}
}

// NewSQL keeps locks through database/sql, with any PostgreSQL driver whose errors tell their SQLSTATE (pgx's stdlib,
// lib/pq). It reserves one connection of the pool for heartbeats, so that the pool must allow at least two. There is
// no LISTEN through database/sql: waiters are polled for, in one statement for all of a client.
func NewSQL(db *sql.DB) driver.Engine[*sql.Tx] {
	return driver.Engine[*sql.Tx]{Backend: &engine{db: sqlDB{db}}}
}

// engine is the SQL of every transition; db is how statements reach the server.
type engine struct{ db database }

func (e *engine) Validate() error { return e.db.validate() }

var errNilPool = errors.New("the pool is nil")
