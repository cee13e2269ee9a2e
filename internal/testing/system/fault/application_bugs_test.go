//go:build unix

package fault

import (
	"context"
	"database/sql"
	"sync"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/migrate"
)

// Bugs in what the application does, or in its engine.
const (
	bugReenters    = "enters a lock again that was released in a transaction"
	bugUnguarded   = "writes beside a release without a guard"
	bugLogsFirst   = "ends a context after the line that says so"
	bugBorrows     = "leaves a setting on a pooled connection"
	bugSharesFate  = "gives one caller's refusal to the next"
	bugForgetsRows = "removes a share and leaves it in the counter"
)

// borrowed sets what a new connection has not.
var borrowed = map[string]string{
	migrate.Postgres: "SELECT set_config('lock_timeout', '1s', false)",
	migrate.MySQL:    "SET SESSION innodb_lock_wait_timeout = 1",
	migrate.SQLite:   "PRAGMA busy_timeout = 0",
}

func init() {
	bugs[bugSharesFate] = func(b driver.Backend, _ *sql.DB) driver.Backend { return &sharesFate{Backend: b} }
	bugs[bugForgetsRows] = func(b driver.Backend, db *sql.DB) driver.Backend { return forgetsUnits{b, db} }
}

// sharesFate returns the error of a refused request to the next one, too.
type sharesFate struct {
	driver.Backend

	mu  sync.Mutex // protects err
	err error
}

func (b *sharesFate) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Take: b.take}.Run(ctx, b.Backend, ops...)
}

func (b *sharesFate) take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	g, taken, err := drivertest.Take(ctx, b.Backend, r)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.Name == refused:
		b.err = err
	case b.err != nil && err == nil && !taken:
		err, b.err = b.err, nil
	}
	return g, taken, err
}

// believe is of the judge, with a context that ends as the employee's bug has it.
func (c *employee) believe(name string, ctx context.Context, p portion) (leave func()) {
	if c.bug != bugLogsFirst {
		return c.judge.believe(name, ctx, p)
	}
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		c.log.pass()
		cancel(context.Cause(ctx))
	})
	left := c.judge.believe(name, late, p)
	return func() {
		if ctx.Err() == nil { // otherwise it is believed in until the context ends
			left()
		}
	}
}
