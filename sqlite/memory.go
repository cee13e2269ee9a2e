package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// secondConnection is how long inspect waits for one.
const secondConnection = time.Second

// inspecting is held by the one that takes two connections.
var inspecting = make(chan struct{}, 1)

var errOwnMemory = errors.New("in-memory and temporary databases are another one in each connection: " +
	"call SetMaxOpenConns(1) before the migrations, or open a file")

// inspect refuses a database whose file is another than at first, and a pool whose connections each have a database of their own: every lock would be granted once in each.
// A database without a file is shared where there is a shared cache, which no statement tells. So it compares the
// number of schema changes in two connections. This is the only place that holds one connection and waits for
// another, and it does not insist: it looks again the next time.
func (d *database) inspect(ctx context.Context) error {
	known := d.file.Load()
	if err := known.check(); err != nil || d.fit.Load() {
		return err
	}
	single := d.db.Stats().MaxOpenConnections == 1
	if single && known != nil {
		return nil // as long as that lasts
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	quiet := context.WithoutCancel(ctx)
	var path string
	if err := conn.QueryRowContext(quiet, "SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'").Scan(&path); err != nil {
		return err
	}
	if path != "" {
		d.file.CompareAndSwap(nil, fileAt(path))
		d.fit.Store(true)
		return nil
	}
	d.file.Store(&file{})
	if single {
		return nil
	}
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
