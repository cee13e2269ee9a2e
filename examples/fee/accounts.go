package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/examples/internal/database"
)

// tableName is the example's own, so that it disturbs nothing else in a database.
const tableName = "dblock_example_fee"

// errRefused: the account has seen a higher token than the one that a write came with.
var errRefused = errors.New("the write came with an older token than the account has seen")

// accounts is the table. It has one account.
type accounts struct {
	db     *sql.DB
	source database.Source
}

// create makes the table anew: one that is there is of a run that was killed.
func (s accounts) create(ctx context.Context) error {
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + tableName,
		"CREATE TABLE " + tableName + " (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, deductions BIGINT NOT " +
			"NULL, token BIGINT NOT NULL)",
		"INSERT INTO " + tableName + " (id, balance, deductions, token) VALUES (1, 0, 0, 0)",
	} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create table %s: %w", tableName, err)
		}
	}
	return nil
}

func (s accounts) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if _, err := s.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+tableName); err != nil {
		return fmt.Errorf("drop table %s: %w", tableName, err)
	}
	return nil
}

// reset makes it a new account.
func (s accounts) reset(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx,
		s.source.Bind("UPDATE "+tableName+" SET balance = ?, deductions = 0, token = 0 WHERE id = 1"),
		replay(0).balance)
	return err
}

func (s accounts) read(ctx context.Context) (a account, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT balance, deductions FROM "+tableName+" WHERE id = 1").Scan(&a.balance,
		&a.deductions)
	return a, err
}

// write is refused where the account has seen a higher token: with the fencing token of a lock, the
// data itself rejects a holder that does not know yet that it lost the lock. Without a lock the
// token is always 0, and no write is refused.
func (s accounts) write(ctx context.Context, a account, token int64) error {
	result, err := s.db.ExecContext(ctx,
		s.source.Bind("UPDATE "+tableName+" SET balance = ?, deductions = ?, token = ? WHERE id = 1 AND token <= ?"),
		a.balance, a.deductions, token, token)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 && token != 0 { // without a token MySQL also says 0 where another wrote the very same
		return errRefused
	}
	return err
}
