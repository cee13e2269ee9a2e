//go:build unix

package fault

import (
	"context"
	"database/sql"
	"sync"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/migrate"
)

// Bugs in what the application does, or in its engine.
const (
	bugReenters     = "enters a lock again that was released in a transaction"
	bugUnguarded    = "writes beside a release without a guard"
	bugUnlocksEarly = "releases before its transaction ends"
	bugNoLockTx     = "writes without LockTx"
	bugNoAdvisory   = "writes without an advisory lock"
	bugNoBump       = "writes without Bump"
	bugLogsFirst    = "ends a context after the line that says so"
	bugBorrows      = "leaves a setting on a pooled connection"
	bugSharesFate   = "gives one caller's refusal to the next"
	bugForgetsRows  = "removes a share and leaves it in the counter"

	bugLooksElsewhere = "takes a name where a connection looks by chance"
	bugBelievesTx     = "believes in a transaction that has ended"
)

// borrowed sets what a new connection has not.
var borrowed = map[migrate.Engine]string{
	migrate.Postgres: "SELECT set_config('lock_timeout', '1s', false)",
	migrate.MySQL:    "SET SESSION innodb_lock_wait_timeout = 1",
	migrate.SQLite:   "PRAGMA busy_timeout = 0",
}

func init() {
	bugs[bugSharesFate] = func(*sql.DB) fakedb.Hook { return (&sharesFate{}).hook }
	bugs[bugForgetsRows] = bugs[bugForgetsUnits]
}

// sharesFate returns the error of a refused request to the next one, too.
type sharesFate struct {
	mu  sync.Mutex // protects err
	err error
}

func (b *sharesFate) hook(ctx context.Context, c *fakedb.Call) error {
	err := c.Do(ctx)
	take, takes := c.Op().(protocol.Take)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !takes:
	case take.Name == refused:
		b.err = err
	case b.err != nil && err == nil && !c.Results[0].Done():
		err, b.err = b.err, nil
	}
	return err
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
