package named

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/foreign"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// wanted are the variables that identify a server, and decide whether it is refused. A server has
// those of its kind.
var wanted = append([]string{"version", "hostname", "port", "server_id", "server_uuid", "server_uid", "read_only",
	"max_execution_time", "max_statement_time"}, mysqlserver.WriterVariables...)

var (
	errReplica = errors.New("read_only is ON: named locks of a replica do not exclude clients of the primary; a " +
		"failover may be in progress; connect to the primary")
	errMultiplexed = errors.New("statements of one connection reach the server on several (seen by CONNECTION_ID()), " +
		"where a named lock would stay behind: connect to the server directly, have the proxy keep connections " +
		"together, or keep locks in tables, mysql.New")
)

// refuse refuses a server whose variables show that it cannot keep named locks.
func refuse(variables map[string]string) error {
	if err := foreign.Refuse(variables["version"]); err != nil {
		return err
	}
	if which := mysqlserver.SeveralWriters(variables); which != "" {
		return driver.Fail(driver.ErrConfig,
			fmt.Errorf("the server is %s: each node has named locks of its own, so that two clients "+
				"could hold one; keep locks in tables, mysql.New", which))
	}
	if mysqlserver.IsOn(variables["read_only"]) {
		return driver.Fail(driver.ErrReadOnly, errReplica)
	}
	return nil
}

// reserved is a connection taken out of the pool for named locks. It never returns to the pool.
type reserved struct {
	*sql.Conn
	server string
	traits mysqlserver.Traits
}

func (c reserved) Server() string { return c.server }

// open takes a connection out of the pool and sets it up. The server closes the connection after it
// has been idle for the given time.
func (s *server) open(ctx context.Context, idle time.Duration) (c reserved, err error) {
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

func (c *reserved) setUp(ctx context.Context, idle time.Duration) error {
	variables, err := mysqlserver.GlobalVariables(ctx, c.Conn, wanted)
	if err != nil {
		return mysqlserver.Interpret(err)
	}
	if err := refuse(variables); err != nil {
		return err
	}
	c.server = fmt.Sprintf("%s:%s (%s %s%s)", variables["hostname"], variables["port"], variables["server_id"],
		variables["server_uuid"], variables["server_uid"])
	// The server's limit on idle connections and the application's limit on its statements are not
	// for these connections.
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

// peek looks at the socket. A connection that is in order and runs no statement has nothing to
// read.
func (c reserved) peek(ctx context.Context) (err error) {
	if failed := c.Raw(func(raw any) error {
		err = raw.(sqldriver.SessionResetter).ResetSession(ctx)
		return nil
	}); failed != nil {
		return failed
	}
	return err
}
