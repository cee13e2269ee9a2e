package postgres

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/tables"
)

// Schema names the schema that has dblock's tables, whatever the search_path of the connections,
// including those with the application's transactions. migrate.Up with migrate.Locks.In makes the
// tables there. Locks in two schemas of one database are independent. A name has letters, digits,
// "_", "$" and "-", at most 63 bytes: any other is ErrConfig from dblock.New. Default: by the
// search_path.
//
// The tables of packages fence and optimistic are found by the search_path of the transaction.
func Schema(name string) Option {
	in, err := tables.New(name)
	return func(e *engine) {
		e.in = in
		if err != nil {
			e.misplaced = driver.Fail(driver.ErrConfig, fmt.Errorf("postgres.Schema: %w", err))
		}
	}
}

// placed adds the schema to the statement's table names.
func (s statement) placed(in *tables.In) statement {
	s.sql = in.Postgres(s.sql)
	return s
}

func placed(in *tables.In, statements []statement) []statement {
	all := make([]statement, len(statements))
	for i, s := range statements {
		all[i] = s.placed(in)
	}
	return all
}

// placedDB is a database whose statements name the schema.
type placedDB struct {
	database
	in *tables.In
}

func (d placedDB) exec(ctx context.Context, s statement) error {
	return d.database.exec(ctx, s.placed(d.in))
}

func (d placedDB) transact(ctx context.Context, s ...statement) error {
	return d.database.transact(ctx, placed(d.in, s)...)
}

func (d placedDB) begin(ctx context.Context, s ...statement) (opened, error) {
	tx, err := d.database.begin(ctx, placed(d.in, s)...)
	return placedOpened{tx, d.in}, err
}

func (d placedDB) reserve(ctx context.Context, app string) (connection, error) {
	conn, err := d.database.reserve(ctx, app)
	return placedConn{conn, d.in}, err
}

type placedOpened struct {
	opened
	in *tables.In
}

func (t placedOpened) exec(ctx context.Context, s ...statement) error {
	return t.opened.exec(ctx, placed(t.in, s)...)
}

func (t placedOpened) commit(ctx context.Context, s ...statement) error {
	return t.opened.commit(ctx, placed(t.in, s)...)
}

type placedConn struct {
	connection
	in *tables.In
}

func (c placedConn) exec(ctx context.Context, s statement) error {
	return c.connection.exec(ctx, s.placed(c.in))
}

func (c placedConn) transact(ctx context.Context, s ...statement) error {
	return c.connection.transact(ctx, placed(c.in, s)...)
}

// placedTx is a caller's transaction whose statements name the schema.
type placedTx struct {
	callersTx
	in *tables.In
}

func (t placedTx) exec(ctx context.Context, s ...statement) error {
	return t.callersTx.exec(ctx, placed(t.in, s)...)
}

// inside returns the engine's steps in a transaction of the caller's.
func (e *engine) inside(tx callersTx) driver.Tx {
	if e.in != nil {
		tx = placedTx{tx, e.in}
	}
	return inTx{tx, e.in}
}
