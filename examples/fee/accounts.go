package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/examples/internal/database"
)

// tableName is the example's own table.
const tableName = "dblock_example_fee"

// errRefused means that the account has seen a higher token than that of the write.
var errRefused = errors.New("the write came with an older token than the account has seen")

// accounts is the table. It has one account.
type accounts struct {
	db     *sql.DB
	source database.Source
}

// create makes the table, and replaces one that a killed run has left.
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

// reset makes a new account.
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

// write is refused if the account has seen a higher token. With the fencing token of a lock, the
// data itself rejects a holder that does not yet know that it lost the lock. Without a lock the
// token is always 0, and no write is refused.
func (s accounts) write(ctx context.Context, a account, token int64) error {
	result, err := s.db.ExecContext(ctx,
		s.source.Bind("UPDATE "+tableName+" SET balance = ?, deductions = ?, token = ? WHERE id = 1 AND token <= ?"),
		a.balance, a.deductions, token, token)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	// without a token MySQL also reports 0 if another server wrote the same values
	if err == nil && rows == 0 && token != 0 {
		return errRefused
	}
	return err
}
