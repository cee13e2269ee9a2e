package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// serverInfo holds the properties of a server that decide how a transaction of the application may
// be locked.
type serverInfo struct {
	// undoes is set if a refused NOWAIT rolls back the whole transaction, not only the statement.
	undoes bool
	// writers describes a server of which several nodes write; "" for all others.
	writers string
}

// askServer reads the properties of a server.
func (e *engine) askServer(ctx context.Context, on *sql.Conn) (*serverInfo, error) {
	undoes := e.server().facts().undoes
	variables, err := mysqlserver.GlobalVariables(ctx, on, append([]string{undoes}, mysqlserver.WriterVariables...))
	if err != nil {
		return nil, err
	}
	return &serverInfo{
		undoes:  mysqlserver.IsOn(variables[undoes]),
		writers: mysqlserver.SeveralWriters(variables),
	}, nil
}

// wakes returns nil if a client can wake the listeners of all others. Otherwise it returns
// ErrUnsupported: a KILL on one node ends no sleep on another.
func (e *engine) wakes() error {
	if deaf := e.server().facts().deaf; deaf != nil {
		return deaf
	}
	if f := e.info.Load(); f != nil && f.writers != "" && !e.singleWriter {
		return driver.Fail(driver.ErrUnsupported,
			fmt.Errorf("the server is %s, whose nodes do not wake each other's clients", f.writers))
	}
	return nil
}

// oneWriter refuses operations that rely on a row lock if row locks hold on one node only, unless
// all clients use one node. Writes exclude each other across nodes; FOR UPDATE and LOCK IN SHARE
// MODE do not.
func (t inTx) oneWriter(ctx context.Context, what string, onSideConn driver.OnSideConn) error {
	e := t.engine
	if e.singleWriter {
		return nil
	}
	if e.info.Load() == nil { // no connection was reserved yet
		if err := onSideConn(ctx, func(context.Context, driver.Upkeep) error { return nil }); err != nil {
			return err
		}
	}
	if f := e.info.Load(); f.writers != "" {
		return driver.Fail(driver.ErrConfig,
			fmt.Errorf("%s relies on a row lock, and the server is %s, where a row lock holds on one node only: "+
				"have all clients use one node and say so, mysql.New(db, mysql.SingleWriter()); or use Lock, whose "+
				"leases exclude across nodes, with fence.Check", what, f.writers))
	}
	return nil
}
