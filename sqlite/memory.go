package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// secondConnection is how long inspect waits for one.
const secondConnection = time.Second

// inspecting is held by the one that takes two connections.
var inspecting = make(chan struct{}, 1)

var (
	errNoRollback = errors.New("journal_mode=OFF: SQLite cannot roll back, and half a transition would stay: choose " +
		"WAL, or any other")
	errExclusive = errors.New("locking_mode=EXCLUSIVE lets one connection of the pool in: " +
		"call SetMaxOpenConns(1) where no other process needs the database, or leave it at NORMAL")
	errOwnMemory = errors.New("in-memory and temporary databases are another one in each connection: " +
		"call SetMaxOpenConns(1) before the migrations, or open a file")
)

// inspect refuses a database that cannot keep locks: one whose file is another than at first, one
// that cannot roll back, one that lets a single connection in where the pool has more, and one that
// is another in each connection. It looks until the tables are found; from then on it only compares
// the file.
func (d *database) inspect(ctx context.Context) error {
	known := d.file.Load()
	if err := known.check(); err != nil || d.fit.Load() {
		return err
	}
	single := d.db.Stats().MaxOpenConnections == 1
	if single && known != nil {
		return nil // as long as that lasts
	}
	var at schemaLocation
	err := d.borrow(ctx, asSet, func(quiet context.Context, conn *sql.Conn) (err error) {
		at, err = locateSchema(quiet, conn)
		return err
	})
	switch {
	case err != nil:
		return err
	case at.journal == "off":
		return driver.Fail(driver.ErrConfig, errNoRollback)
	case at.locking == "exclusive" && at.path != "" && !single: // which a database in memory always says
		return driver.Fail(driver.ErrConfig, errExclusive)
	case at.path != "" && at.journal != "":
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
// granted once in each. A database without a file is shared where there is a shared cache, which no
// statement tells. So it compares the number of schema changes in two connections. This is the only
// place that holds one connection and waits for another, and it does not insist: it looks again the
// next time.
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
