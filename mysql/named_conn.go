package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// wanted is what has to be known of a server. Which of these variables there are depends on its
// kind.
var wanted = append([]string{"hostname", "port", "server_id", "server_uuid", "server_uid", "read_only", "max_execution_time", "max_statement_time"}, mysqlserver.WriterVariables...)

var (
	errReplica = errors.New("the server is read-only (read_only=ON), as replicas are: named locks that are taken there are nothing to the " +
		"primary; connect to that")
	errMultiplexed = errors.New("statements of one connection reach the server on several (seen by CONNECTION_ID()), where a named lock would " +
		"stay behind: connect to the server directly, have the proxy keep connections together, or keep locks in tables, mysql.New")
)

// refuse tells whether a server with these variables is none to keep named locks on.
func refuse(variables map[string]string) error {
	if which := mysqlserver.SeveralWriters(variables); which != "" {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("the server is %s: each node has named locks of its own, so that two clients "+
			"could hold one; keep locks in tables, mysql.New", which))
	}
	if mysqlserver.IsOn(variables["read_only"]) {
		return driver.Fail(driver.ErrReadOnly, errReplica)
	}
	return nil
}

// namedConn is a connection that is reserved for named locks. It never goes back to the pool.
type namedConn struct {
	*sql.Conn
	server string
	traits mysqlserver.Traits
}

func (c namedConn) Server() string { return c.server }

// open takes a connection out of the pool and sets it up. The server closes it when it has been
// idle for that long.
func (s *namedServer) open(ctx context.Context, idle time.Duration) (c namedConn, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return c, mysqlserver.Interpret(err)
	}
	c.Conn = conn
	if err := c.setUp(ctx, idle); err != nil {
		mysqlserver.Discard(conn)
		return c, err
	}
	return c, nil
}

func (c *namedConn) setUp(ctx context.Context, idle time.Duration) error {
	variables, err := mysqlserver.GlobalVariables(ctx, c.Conn, wanted)
	if err != nil {
		return mysqlserver.Interpret(err)
	}
	if err := refuse(variables); err != nil {
		return err
	}
	c.server = fmt.Sprintf("%s:%s (%s %s%s)", variables["hostname"], variables["port"], variables["server_id"], variables["server_uuid"], variables["server_uid"])
	// Neither the server's patience with idle connections nor the application's limit on its
	// statements is for these.
	set := fmt.Sprintf("SET SESSION wait_timeout = %d", idle/time.Second)
	for _, name := range []string{"max_execution_time", "max_statement_time"} {
		if _, there := variables[name]; there {
			set += ", SESSION " + name + " = 0"
		}
	}
	if _, err := c.ExecContext(ctx, set); err != nil {
		return mysqlserver.Interpret(err)
	}
	return c.Raw(func(raw any) error {
		c.traits = mysqlserver.TraitsOf(raw)
		return nil
	})
}

// peek looks at the socket: nothing is to be read on a connection in order on which no statement
// runs.
func (c namedConn) peek(ctx context.Context) (err error) {
	if failed := c.Raw(func(raw any) error {
		err = raw.(sqldriver.SessionResetter).ResetSession(ctx)
		return nil
	}); failed != nil {
		return failed
	}
	return err
}
