package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

const (
	ordersTable = "dblock_example_orders" // the example's own
	outboxTable = "dblock_example_outbox"
)

// shop is the application that writes orders and their messages.
type shop struct {
	db     database.Database
	client *dblock.Client[*sql.Tx]
}

// order writes an order and its message, or neither. LockTx gives the messages of one customer an
// order: without it, a transaction with a lower id may commit after one with a higher id.
func (s shop) order(ctx context.Context, customer, number int) error {
	tx, err := s.db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after the commit it does nothing
	if err := s.client.LockTx(ctx, tx, dblock.Name("customer", fmt.Sprint(customer))); err != nil {
		return err
	}
	insert := s.db.Bind("INSERT INTO " + ordersTable + " (customer, number) VALUES (?, ?)")
	if _, err := tx.ExecContext(ctx, insert, customer, number); err != nil {
		return err
	}
	insert = s.db.Bind("INSERT INTO " + outboxTable + " (customer, body) VALUES (?, ?)")
	if _, err := tx.ExecContext(ctx, insert, customer, body(number)); err != nil {
		return err
	}
	return tx.Commit()
}

// body is the message of a customer's order.
func body(number int) string { return fmt.Sprintf("order %d", number) }

// drained waits until every message is marked as sent.
func (s shop) drained(ctx context.Context) error {
	for {
		var left int
		err := s.db.SQL.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+outboxTable+" WHERE NOT sent").Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func createTables(ctx context.Context, db database.Database) error {
	id := "INTEGER PRIMARY KEY"
	switch db.Engine {
	case migrate.Postgres:
		id = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	case migrate.MySQL:
		id = "BIGINT AUTO_INCREMENT PRIMARY KEY"
	}
	dropTables(db)
	for _, statement := range []string{
		"CREATE TABLE " + ordersTable + " (customer INT NOT NULL, number INT NOT NULL)",
		"CREATE TABLE " + outboxTable + " (id " + id + ", customer INT NOT NULL, body VARCHAR(200) NOT NULL, " +
			"sent BOOLEAN NOT NULL DEFAULT FALSE)",
	} {
		if _, err := db.SQL.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func dropTables(db database.Database) {
	for _, table := range []string{ordersTable, outboxTable} {
		_, _ = db.SQL.Exec("DROP TABLE IF EXISTS " + table)
	}
}
