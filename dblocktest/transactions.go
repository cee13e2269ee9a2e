package dblocktest

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// errNoTransactions names the alternatives.
var errNoTransactions = driver.Fail(driver.ErrUnsupported, errors.New("a dblocktest.Fake has no transactions: "+
	"test Guard, UnlockTx and LockTx with dblocktest.SQLite, or on a database"))

// noTx refuses every step inside a transaction: the commit cannot be seen here, and a Guard that
// does not guard would let a test pass that must fail.
type noTx struct{}

func inNoTx[TX any](TX) driver.Tx { return noTx{} }

func (noTx) Exclusive() bool { return false }

func (noTx) MakeGuard(context.Context, protocol.Held, driver.OnSideConn) error {
	return errNoTransactions
}

func (noTx) Guard(context.Context, protocol.Held, driver.OnSideConn) error { return errNoTransactions }

func (noTx) Release(context.Context, protocol.Held, protocol.Detachment, driver.OnSideConn) error {
	return errNoTransactions
}

func (noTx) Database(context.Context) (string, error) { return "", errNoTransactions }

func (noTx) Lock(
	context.Context, string, driver.Pass, bool, driver.OnSideConn,
) (driver.State, bool, error) {
	return driver.State{}, false, errNoTransactions
}
