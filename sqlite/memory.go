package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/tables"
)

// secondConnection bounds the wait of inspect for a second connection.
const secondConnection = time.Second

// inspecting is held by the goroutine that takes two connections.
var inspecting = make(chan struct{}, 1)

var (
	errNoRollback = errors.New("journal_mode=OFF: SQLite cannot roll back, so a failed transition would stay by " +
		"half: choose WAL or any other mode")
	errExclusive = errors.New("locking_mode=EXCLUSIVE lets one connection of the pool in: call SetMaxOpenConns(1) " +
		"where no other process needs the database, or leave it at NORMAL")
	errOwnMemory = errors.New("each connection has an in-memory or temporary database of its own: " +
		"call SetMaxOpenConns(1) before the migrations, or open a file")
)

// inspect refuses a database that cannot keep locks: its file is no longer the one first used, or
// has several names, it cannot roll back, it admits a single connection while the pool has more, or
// each connection has a database of its own. Once the tables are found, inspect only compares the
// file.
func (d *database) inspect(ctx context.Context) error {
	known := d.file.Load()
	if err := known.check(); err != nil || d.fit.Load() {
		return err
	}
	single := d.db.Stats().MaxOpenConnections == 1
	if single && known != nil {
		return nil // until the pool's limit changes
	}
	var at schemaLocation
	err := d.borrow(ctx, asSet, func(quiet context.Context, conn *sql.Conn) (err error) {
		at, err = locateSchema(quiet, conn)
		return err
	})
	if err == nil && at.main && at.journal != "" {
		err = d.tables.Find(func() (*tables.In, error) { return tables.Found("main") })
	}
	switch {
	case err != nil:
		return err
	case at.journal == "off":
		return driver.Fail(driver.ErrConfig, errNoRollback)
	// a database in memory always reports exclusive
	case at.locking == "exclusive" && at.path != "" && !single:
		return driver.Fail(driver.ErrConfig, errExclusive)
	case at.path != "" && at.journal != "":
		if at.journal == "wal" { // its -wal may be gone again, with the connection
			if err := named(at.path); err != nil {
				return err
			}
		}
		d.file.CompareAndSwap(nil, fileAt(at.path))
		d.main.Store(at.main)
		d.fit.Store(true)
		return nil
	case at.path != "":
		return nil // no tables yet: they may be in another of the connection's databases
	case single:
		d.file.Store(&file{})
		return nil
	}
	return d.compare(ctx)
}

// compare refuses a pool whose connections each have a database of their own: every lock would be
// granted once in each. A database without a file is shared if there is a shared cache, but no
// statement shows that. So compare reads the number of schema changes in two connections. This is
// the only place that holds one connection while it waits for another. If the second one does not
// come in time, the next call compares again.
func (d *database) compare(ctx context.Context) error {
	quiet := context.WithoutCancel(ctx)
	conn, err := d.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, secondConnection)
	defer cancel()
	select {
	case inspecting <- struct{}{}:
		defer func() { <-inspecting }()
	case <-ctx.Done():
		return nil
	}
	other, err := d.db.Conn(ctx)
	if err != nil {
		return nil
	}
	defer other.Close()
	var here, there int64
	if err := conn.QueryRowContext(quiet, "PRAGMA schema_version").Scan(&here); err != nil {
		return err
	}
	if err := other.QueryRowContext(quiet, "PRAGMA schema_version").Scan(&there); err != nil {
		return err
	}
	if here != there {
		return driver.Fail(driver.ErrConfig, errOwnMemory)
	}
	d.fit.Store(here != 0) // with no tables yet, both are 0
	return nil
}
