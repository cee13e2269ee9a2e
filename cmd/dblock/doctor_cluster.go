package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// severalNodes is what to do where row locks hold on one node only.
const severalNodes = "have all clients use one node and say mysql.SingleWriter(), or use Lock with fence.Check"

func cluster(ctx context.Context, e *examination) ([]finding, error) {
	is, err := e.values(ctx, "GLOBAL VARIABLES", "wsrep_on", "group_replication_group_name", "group_replication_single_primary_mode")
	switch {
	case err != nil:
		return nil, err
	case isOn(is["wsrep_on"]):
		return galera(ctx, e)
	case is["group_replication_group_name"] != "":
		return group(ctx, e, isOn(is["group_replication_single_primary_mode"]))
	}
	return found(fine("the server is no node of Galera or of Group Replication"))
}

func galera(ctx context.Context, e *examination) (made []finding, err error) {
	is, err := e.values(ctx, "GLOBAL STATUS", "wsrep_ready", "wsrep_cluster_status", "wsrep_cluster_size")
	if err != nil {
		return nil, err
	}
	options, err := e.values(ctx, "GLOBAL VARIABLES", "wsrep_provider_options")
	if err != nil {
		return nil, err
	}
	e.failover = ofGalera(options["wsrep_provider_options"])
	if !isOn(is["wsrep_ready"]) || is["wsrep_cluster_status"] != "Primary" {
		made = append(made, problem(fmt.Sprintf("this node of a Galera cluster is not ready (wsrep_ready is %s, wsrep_cluster_status is %s)", is["wsrep_ready"], is["wsrep_cluster_status"]),
			"bring the node back, or connect to another"))
	}
	return append(made, note(fmt.Sprintf("the server is one of %s nodes of a Galera cluster: leases work on all of them; LockTx and Guard are refused without mysql.SingleWriter(), and mysql.Named altogether",
		is["wsrep_cluster_size"]), severalNodes)), nil
}

// member is a server of a group.
type member struct {
	state, role string
	single      bool   // the group has a single primary
	consistency string // of this session: what it waits for; "" where the server has no such setting
}

// consistencies are what each group_replication_consistency means where there is a single primary.
var consistencies = map[string]string{
	eventual:                     "a new primary may serve before it has applied what the old one committed, and LockTx and Guard may go by an older holder",
	"BEFORE_ON_PRIMARY_FAILOVER": "a new primary serves once it has applied what the old one committed",
	"BEFORE":                     "a transaction waits until what was committed before it is applied",
	"AFTER":                      "a commit waits until every member has applied it",
	"BEFORE_AND_AFTER":           "a transaction waits until what was committed before it is applied, and its commit until every member has applied it",
}

const eventual = "EVENTUAL"

func group(ctx context.Context, e *examination, single bool) ([]finding, error) {
	is, err := e.values(ctx, "SESSION VARIABLES", "group_replication_consistency", "group_replication_member_expel_timeout")
	if err != nil {
		return nil, err
	}
	e.failover = ofGroup(leading(is["group_replication_member_expel_timeout"]))
	m := member{single: single, consistency: is["group_replication_consistency"]}
	err = e.QueryRowContext(ctx, "SELECT MEMBER_STATE, MEMBER_ROLE FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid").Scan(&m.state, &m.role)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return m.judge(err), nil
}

// String is a member of a group with a single primary.
func (m member) String() string {
	text := "the server is in a group with a single primary"
	if m.state != "" {
		text += ": " + strings.ToLower(m.role+", "+m.state)
	}
	if means := consistencies[m.consistency]; means != "" {
		text += "; group_replication_consistency is " + m.consistency + ": " + means
	}
	return text
}

// judge judges a member, or why it could not be read. One that was never started has no ID, and so
// no row.
func (m member) judge(err error) (made []finding) {
	if errors.Is(err, sql.ErrNoRows) {
		m.state, err = "OFFLINE", nil
	}
	switch {
	case errorNumber(err) == deniedTable:
		made = append(made, unknown(fmt.Sprintf("the state of this member of a group cannot be read: %v", err), "GRANT SELECT ON performance_schema.replication_group_members"))
	case err != nil:
		made = append(made, unknown(fmt.Sprintf("the state of this member of a group cannot be read: %v", err), ""))
	case m.state != "ONLINE":
		made = append(made, problem("this member of a group is "+m.state, "bring it back, or connect to another"))
	case m.single && m.consistency != eventual:
		made = append(made, fine(m.String()))
	}
	if m.single && m.consistency == eventual {
		return append(made, note(m.String(), "set group_replication_consistency = BEFORE_ON_PRIMARY_FAILOVER on every member, the default since MySQL 8.4"))
	} else if m.single {
		return made
	}
	return append(made, note("the server is one of several primaries of a group: leases work on all of them; LockTx and Guard are refused without mysql.SingleWriter(), and mysql.Named altogether", severalNodes))
}
