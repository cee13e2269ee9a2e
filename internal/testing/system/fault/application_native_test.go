//go:build unix

package fault

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
)

// native locks with what the server has itself. A lock of a session promises nothing to a write on
// another connection: the server frees it with its own connection. What it promises is in
// hindsight: if Unlock returns nil, the name was held from Lock until then. A lock of a transaction
// is held until that ends.
type native struct {
	locks interface {
		Lock(ctx context.Context, name string, options ...dblock.LockOption) (dblock.Handle, error)
	}
	close func(ctx context.Context) error
	pool  *pgxpool.Pool // of its transactions; nil: MySQL has no locks of transactions
	tx    *postgres.AdvisoryClient
}

// openNative returns nil for SQLite, which has no locks of its own.
func openNative(w *world, db dbtest.Database, log slog.Handler) *native {
	w.Helper()
	switch db.Kind {
	case dbtest.KindSQLite:
		return nil
	case dbtest.KindPostgres:
		pool := db.Pool(w)
		c, err := postgres.Advisory(pool, postgres.AdvisoryTTL(ttl), postgres.AdvisoryLogger(slog.New(log)))
		require.NoError(w, err)
		return &native{c, c.Close, pool, c}
	}
	c, err := mysql.Named(db.SQL(w), mysql.NamedTTL(ttl), mysql.NamedLogger(slog.New(log)))
	require.NoError(w, err)
	return &native{locks: c, close: c.Close}
}

// nativeName is a name that no other database of the server has: MySQL's locks are the server's.
func (c *employee) nativeName() string { return fmt.Sprintf("native %d %s", c.seed, c.name()) }

// lockNative holds a lock of a session, which counts if Unlock says so.
func (c *employee) lockNative(ctx context.Context) error {
	if c.native == nil {
		return nil
	}
	name := c.nativeName()
	l, err := c.native.locks.Lock(ctx, name)
	if err != nil {
		return own{err}
	}
	from := session.Boottime()
	c.busy()
	until := session.Boottime()
	if err := l.Unlock(ctx); err != nil {
		return own{err}
	}
	c.held(name, from, until)
	c.tried("locks of the server's", 1)
	return nil
}

// lockNativeInTx holds a lock of a transaction, whose context ends at any moment.
func (c *employee) lockNativeInTx(ctx context.Context) error {
	if c.native == nil || c.native.tx == nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, c.brief(20*time.Millisecond))
	defer cancel()
	tx, err := c.native.pool.Begin(within)
	if err != nil {
		return own{err}
	}
	defer tx.Rollback(ctx)
	name := c.nativeName()
	if c.bug != bugNoAdvisory {
		if err := c.native.tx.LockTx(within, tx, name); err != nil {
			return own{err}
		}
	}
	leave := c.believe(name, within, portion{})
	defer leave()
	c.busy()
	leave()
	if err := tx.Commit(within); err != nil {
		return own{err}
	}
	c.tried("locks of the server's", 1)
	return nil
}
