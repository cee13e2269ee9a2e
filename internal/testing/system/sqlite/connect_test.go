package sqlite_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// interrupting makes one connection, and then none before the context ends, of which it says what
// ncruces/go-sqlite3 does.
type interrupting struct {
	driver sqldriver.Driver
	dsn    string
	made   bool
}

// interrupted is an error with the result code SQLITE_INTERRUPT.
type interrupted struct{}

func (interrupted) Error() string { return "interrupted" }
func (interrupted) Code() int     { return 9 }

func (c *interrupting) Driver() sqldriver.Driver { return c.driver }

func (c *interrupting) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if c.made {
		<-ctx.Done()
		return nil, interrupted{}
	}
	c.made = true
	return c.driver.Open(c.dsn)
}

func TestAConnectionThatWasCutOffInTheMakingIsNoError(t *testing.T) {
	f := newFixture(t)
	pool := sql.OpenDB(&interrupting{driver: f.pool.Driver(), dsn: "file:" + f.path})
	defer pool.Close()
	g := on(t, pool, f.path)
	tx := g.begin()
	pass := func(string, int, any) bool { return false }
	if _, locked, err := g.In(tx).Lock(t.Context(), "n", pass, true, nil); err != nil || !locked {
		t.Errorf("LockTx without a second connection: %v, %v", locked, err)
	}
	ctx, cancel := brief(t)
	defer cancel()
	if _, _, err := drivertest.Take(ctx, g, request("n", "s")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Take: %v", err)
	}
	require.NoError(t, tx.Rollback())
	if _, _, err := drivertest.Take(t.Context(), g, request("n", f.session())); errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
}
