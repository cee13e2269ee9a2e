package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/driver"
)

// facts is what has to be known of a server before something is locked in a transaction of the
// application's.
type facts struct {
	// undoes: a lock wait that times out takes the whole transaction back, and not its statement
	// alone (innodb_rollback_on_timeout).
	undoes bool
	// writers is what the server is where several nodes write; "" where it is not.
	writers string
	// undoesNowait: so does NOWAIT, which to MariaDB is a wait that times out at once.
	undoesNowait bool
}

// writersOf are the variables by which severalWriters tells. A session's own wsrep_on says nothing
// about the server.
var writersOf = []string{"wsrep_on", "group_replication_group_name", "group_replication_single_primary_mode"}

// severalWriters says what a server is that is one of several nodes which all write; "" where it is
// not.
func severalWriters(variables map[string]string) string {
	switch {
	case isOn(variables["wsrep_on"]):
		return "a node of a Galera cluster (wsrep_on=ON)"
	case variables["group_replication_group_name"] != "" && !isOn(variables["group_replication_single_primary_mode"]):
		return "one of several primaries (group_replication_single_primary_mode=OFF)"
	}
	return ""
}

func isOn(value string) bool { return value != "" && value != "OFF" && value != "0" }

// factsOf asks a server.
func factsOf(ctx context.Context, on *sql.Conn) (*facts, error) {
	variables, err := globalVariables(ctx, on, append([]string{"version", "innodb_rollback_on_timeout"}, writersOf...))
	if err != nil {
		return nil, err
	}
	f := &facts{undoes: isOn(variables["innodb_rollback_on_timeout"]), writers: severalWriters(variables)}
	f.undoesNowait = f.undoes && strings.Contains(variables["version"], "MariaDB")
	return f, nil
}

// oneWriter refuses what relies on a row lock where a row lock holds on its own node alone, unless
// all clients use one. What is written excludes across nodes; FOR UPDATE and LOCK IN SHARE MODE are
// not.
func (t transactions) oneWriter(ctx context.Context, what string, aside driver.Aside) error {
	e := t.engine
	if e.singleWriter {
		return nil
	}
	if e.facts.Load() == nil { // no connection was reserved so far
		if err := aside(ctx, func(context.Context, driver.Upkeep) error { return nil }); err != nil {
			return err
		}
	}
	if f := e.facts.Load(); f.writers != "" {
		return driver.Fail(driver.ErrConfig, fmt.Errorf("%s relies on a row lock, and the server is %s, where a row lock holds on one node only: "+
			"have all clients use one node and say so, mysql.New(db, mysql.SingleWriter()); or use Lock, whose leases exclude across nodes, with fence.Check", what, f.writers))
	}
	return nil
}

// globalVariables are those of the server that there are, in lower case.
func globalVariables(ctx context.Context, on *sql.Conn, names []string) (map[string]string, error) {
	rows, err := on.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('"+strings.Join(names, "', '")+"')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	variables := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		variables[strings.ToLower(name)] = value
	}
	return variables, rows.Err()
}
