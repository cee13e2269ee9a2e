package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// store is the database of a run.
type store struct{ database.Database }

func (d store) accounts() accounts {
	return accounts{d.SQL, d.Source}
}

// migrate makes dblock's tables, where they are not there yet.
func (d store) migrate(ctx context.Context) error { return migrate.Up(ctx, d.SQL, d.Engine) }

// onlyRun keeps a second run of this program out of the database, since both would use the same table. It is a lock,
// of course: after a run that was killed, it is free when the TTL is over.
func (d store) onlyRun(ctx context.Context, o options) (release func(), err error) {
	engine := map[string]func(*sql.DB) driver.Engine[*sql.Tx]{
		migrate.Postgres: postgres.NewSQL, migrate.MySQL: mysql.New, migrate.SQLite: sqlite.New,
	}[d.Engine]
	log := slog.New(slog.DiscardHandler)
	if o.verbose {
		log = slog.Default()
	}
	client, err := dblock.New(engine(d.SQL), dblock.WithTTL(o.ttl), dblock.WithLogger(log))
	if err != nil {
		return nil, err
	}
	release = func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		_ = client.Close(ctx) // what it cannot give back now is free after the TTL
	}
	if _, err := client.TryLock(ctx, tableName+"/run"); err != nil {
		release()
		if errors.Is(err, dblock.ErrNotAcquired) {
			return nil, fmt.Errorf("another run uses this database, or was killed a moment ago: %w", err)
		}
		return nil, err
	}
	return release, nil
}

// whileNobodyWrites calls f at a moment at which no process is in the middle of writing to an SQLite file. SQLite has one
// write lock for the whole file: a process that is stopped while it has that stops everybody, whatever else they lock.
func (d store) whileNobodyWrites(ctx context.Context, f func() error) error {
	if d.Engine != migrate.SQLite {
		return f()
	}
	conn, err := d.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = f()
	_, rollbackErr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return errors.Join(err, rollbackErr)
}
