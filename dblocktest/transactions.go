package dblocktest

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
)

// errNoTransactions names the alternatives.
var errNoTransactions = driver.Fail(driver.ErrUnsupported, errors.New("a dblocktest.Fake has no transactions: "+
	"test Guard, UnlockTx and LockTx with dblocktest.SQLite, or on a database"))

// transactions refuses every step inside a transaction: the commit cannot be seen here, and a Guard
// that does not guard would let a test pass that must fail.
type transactions[TX any] struct{}

func (transactions[TX]) Exclusive() bool { return false }

func (transactions[TX]) MakeGuard(context.Context, driver.Held, driver.OnSideConn) error {
	return errNoTransactions
}

func (transactions[TX]) Guard(context.Context, TX, driver.Held, driver.OnSideConn) error {
	return errNoTransactions
}

func (transactions[TX]) ReleaseTx(context.Context, TX, driver.Held, driver.Detachment, driver.OnSideConn) error {
	return errNoTransactions
}

func (transactions[TX]) Database(context.Context, TX) (string, error) { return "", errNoTransactions }

func (transactions[TX]) LockTx(
	context.Context, TX, string, driver.Pass, bool, driver.OnSideConn,
) (driver.State, bool, error) {
	return driver.State{}, false, errNoTransactions
}
