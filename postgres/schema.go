package postgres

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/tables"
)

// Schema names the schema that has dblock's tables. migrate.Up with migrate.Locks.In makes the
// tables there. Locks in two schemas of one database are independent. A name has letters, digits,
// "_", "$" and "-", at most 63 bytes: any other is ErrConfig from dblock.New. Default: the schema
// in which the client's first statement finds the tables, by the search_path of its connection.
//
// Every statement of a client names its schema, also those in the application's transactions: what
// search_path a connection has later changes nothing.
//
// The tables of packages fence and optimistic are found by the search_path of the transaction.
func Schema(name string) Option {
	in, err := tables.New(name)
	return Option{func(e *engine) {
		e.tables.State(in)
		if err != nil {
			e.misplaced = driver.Fail(driver.ErrConfig, fmt.Errorf("postgres.Schema: %w", err))
		}
	}}
}

// anchor is the table by which a client finds the others.
const anchor = "dblock_schema"

// missing is the server's error for a missing table, by its SQLSTATE.
type missing string

func (m missing) Error() string { return fmt.Sprintf("relation %q does not exist", string(m)) }

func (missing) SQLState() string { return "42P01" }

// placer puts the schema in front of the tables' names in statements. It looks for the schema on a
// connection of db, never on one of the application's transactions.
type placer struct {
	db     database
	tables *tables.Place
}

// find fails if there are no tables: without its schema no statement that names a table is sent.
func (p placer) find(ctx context.Context) error {
	return p.tables.Find(func() (*tables.In, error) {
		var name string
		var there bool
		err := p.db.exec(ctx, query(postgresdb.Where, anchor).found(&name, &there))
		switch {
		case err != nil:
			return nil, err
		case !there:
			return nil, missing(anchor)
		}
		in, err := tables.Found(name)
		if err != nil {
			err = driver.Fail(driver.ErrConfig, err)
		}
		return in, err
	})
}

func (p placer) place(ctx context.Context, statements ...statement) ([]statement, error) {
	all := make([]statement, len(statements))
	for i, s := range statements {
		if p.tables.In() == nil && tables.Named(s.sql) {
			if err := p.find(ctx); err != nil {
				return nil, err
			}
		}
		s.sql = p.tables.In().Postgres(s.sql)
		all[i] = s
	}
	return all, nil
}

// each runs a statement with its place.
func (p placer) each(ctx context.Context, s statement, run func(ctx context.Context, s statement) error) error {
	placed, err := p.place(ctx, s)
	if err != nil {
		return err
	}
	return run(ctx, placed[0])
}

// all runs statements with their place.
func (p placer) all(
	ctx context.Context, statements []statement, run func(ctx context.Context, s ...statement) error,
) error {
	placed, err := p.place(ctx, statements...)
	if err != nil {
		return err
	}
	return run(ctx, placed...)
}

// placedDB is a database whose statements name the schema.
type placedDB struct {
	database
	placer
}

func (d placedDB) exec(ctx context.Context, s statement) error {
	return d.each(ctx, s, d.database.exec)
}

func (d placedDB) transact(ctx context.Context, s ...statement) error {
	return d.all(ctx, s, d.database.transact)
}

func (d placedDB) begin(ctx context.Context, s ...statement) (tx opened, err error) {
	err = d.all(ctx, s, func(ctx context.Context, s ...statement) (err error) {
		tx, err = d.database.begin(ctx, s...)
		return err
	})
	return placedOpened{tx, d.placer}, err
}

func (d placedDB) reserve(ctx context.Context, app string) (connection, error) {
	conn, err := d.database.reserve(ctx, app)
	return placedConn{conn, d.placer}, err
}

type placedOpened struct {
	opened
	placer
}

func (t placedOpened) exec(ctx context.Context, s ...statement) error {
	return t.all(ctx, s, t.opened.exec)
}

// commit runs no statement that begin or exec has not found the place for: it MUST end the
// transaction.
func (t placedOpened) commit(ctx context.Context, s ...statement) error {
	placed, err := t.place(ctx, s...)
	if err != nil {
		t.rollback(ctx)
		return err
	}
	return t.opened.commit(ctx, placed...)
}

type placedConn struct {
	connection
	placer
}

func (c placedConn) exec(ctx context.Context, s statement) error {
	return c.each(ctx, s, c.connection.exec)
}

func (c placedConn) transact(ctx context.Context, s ...statement) error {
	return c.all(ctx, s, c.connection.transact)
}

// placedTx is a caller's transaction whose statements name the schema.
type placedTx struct {
	callersTx
	placer
}

func (t placedTx) exec(ctx context.Context, s ...statement) error {
	return t.all(ctx, s, t.callersTx.exec)
}

// inside returns the engine's steps in a transaction of the caller's.
func (e *engine) inside(tx callersTx) driver.Tx {
	return inTx{placedTx{tx, e.placer}, e.tables}
}
