package mysqlserver

import (
	"context"
	"database/sql"
	"strings"
)

// WriterVariables are the variables that SeveralWriters reads. A session's own wsrep_on says
// nothing about the server.
var WriterVariables = []string{"wsrep_on", "group_replication_group_name", "group_replication_single_primary_mode"}

// SeveralWriters describes a server that is one of several writing nodes; "" for any other server.
func SeveralWriters(variables map[string]string) string {
	switch {
	case IsOn(variables["wsrep_on"]):
		return "a node of a Galera cluster (wsrep_on=ON)"
	case variables["group_replication_group_name"] != "" && !IsOn(variables["group_replication_single_primary_mode"]):
		return "one of several primaries (group_replication_single_primary_mode=OFF)"
	}
	return ""
}

// IsOn reads a variable that is ON or OFF. A variable that the server does not have is off.
func IsOn(value string) bool { return value != "" && value != "OFF" && value != "0" }

// GlobalVariables returns those of the named variables that the server has, by their names in lower
// case.
func GlobalVariables(ctx context.Context, on *sql.Conn, names []string) (map[string]string, error) {
	rows, err := on.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('"+strings.Join(names, "', '")+
		"')")
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
