package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// severalNodes is the advice if row locks hold on one node only.
const severalNodes = "have all clients use one node and say mysql.SingleWriter(), or use Lock with fence.Check"

func cluster(ctx context.Context, e *examination) ([]finding, error) {
	is, err := e.values(ctx, "GLOBAL VARIABLES", "wsrep_on", "group_replication_group_name",
		"group_replication_single_primary_mode")
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
	set, err := e.values(ctx, "SESSION VARIABLES", "wsrep_provider_options", "wsrep_sync_wait")
	if err != nil {
		return nil, err
	}
	e.failover = ofGalera(set["wsrep_provider_options"])
	if !isOn(is["wsrep_ready"]) || is["wsrep_cluster_status"] != "Primary" {
		made = append(made, problem(fmt.Sprintf("this node of a Galera cluster is not ready (wsrep_ready is %s, "+
			"wsrep_cluster_status is %s)", is["wsrep_ready"], is["wsrep_cluster_status"]),
			"bring the node back, or connect to another"))
	}
	return append(made, note(fmt.Sprintf("the server is one of %s nodes of a Galera cluster: leases work on all of "+
		"them; LockTx and Guard are refused without mysql.SingleWriter(), and mysql.Named altogether",
		is["wsrep_cluster_size"]), severalNodes), syncWait(leading(set["wsrep_sync_wait"]))), nil
}

// notFound is the effect of several nodes on Unlock if a read does not wait for the other nodes'
// commits.
const notFound = "a client that its router moves to a node that lags may not find its own lock there: Unlock " +
	"returns ErrNotHeld, and one of the next heartbeats releases the lock"

// syncWait judges a session's wsrep_sync_wait. Its lowest bit makes SELECT and BEGIN wait, as a
// release does after an UPDATE that found nothing.
func syncWait(bits int) finding {
	is := fmt.Sprintf("wsrep_sync_wait is %d: ", bits)
	if bits&1 == 0 {
		return note(is+notFound, "live with that, or set wsrep_sync_wait = 1 on every node")
	}
	return fine(is + "a read waits until earlier commits are applied")
}

const (
	eventual   = "EVENTUAL"
	onFailover = "BEFORE_ON_PRIMARY_FAILOVER"
)

// consistencies describes the waits of a member for each group_replication_consistency.
var consistencies = map[string]string{
	eventual: "a new primary may serve before it has applied the old one's commits, and LockTx and Guard may go by " +
		"an older holder",
	onFailover: "a new primary serves once it has applied the old one's commits",
	"BEFORE":   "a transaction waits until earlier commits are applied",
	"AFTER":    "a commit waits until every member has applied it",
	"BEFORE_AND_AFTER": "a transaction waits until earlier commits are applied, and its commit until every " +
		"member has applied it",
}

// member is a server of a group.
type member struct {
	state, role string
	single      bool   // the group has a single primary
	consistency string // of this session; "": the server has no such setting
}

func group(ctx context.Context, e *examination, single bool) ([]finding, error) {
	is, err := e.values(ctx, "SESSION VARIABLES", "group_replication_consistency",
		"group_replication_member_expel_timeout")
	if err != nil {
		return nil, err
	}
	e.failover = ofGroup(leading(is["group_replication_member_expel_timeout"]))
	m := member{single: single, consistency: is["group_replication_consistency"]}
	err = e.QueryRowContext(ctx, "SELECT MEMBER_STATE, MEMBER_ROLE FROM "+
		"performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid").Scan(&m.state, &m.role)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return append(m.judge(err), m.waits()...), nil
}

// judge judges a member, or the error of reading it. A member that was never started has no ID, and
// so no row.
func (m member) judge(err error) (made []finding) {
	if errors.Is(err, sql.ErrNoRows) {
		m.state, err = "OFFLINE", nil
	}
	switch {
	case errorNumber(err) == deniedTable:
		made = append(made, unknown(fmt.Sprintf("the state of this member of a group cannot be read: %v", err),
			"GRANT SELECT ON performance_schema.replication_group_members"))
	case err != nil:
		made = append(made, unknown(fmt.Sprintf("the state of this member of a group cannot be read: %v", err), ""))
	case m.state != "ONLINE":
		made = append(made, problem("this member of a group is "+m.state, "bring it back, or connect to another"))
	case m.single:
		made = append(made, fine("the server is in a group with a single primary: "+strings.ToLower(m.role+", "+
			m.state)))
	}
	if !m.single {
		made = append(made, note("the server is one of several primaries of a group: leases work on all of them; "+
			"LockTx and Guard are refused without mysql.SingleWriter(), and mysql.Named altogether", severalNodes))
	}
	return made
}

// waits judges the waits of a member under the group's consistency.
func (m member) waits() []finding {
	means, known := consistencies[m.consistency]
	is := "group_replication_consistency is " + m.consistency + ": "
	switch {
	case !known:
		return nil
	case m.single && m.consistency == eventual:
		return []finding{note(is+means, "set group_replication_consistency = "+onFailover+
			" on every member, the default since MySQL 8.4")}
	case !m.single && (m.consistency == eventual || m.consistency == onFailover):
		return []finding{note(is+notFound,
			"live with that, or set group_replication_consistency = AFTER (or BEFORE_AND_AFTER) on every member")}
	}
	return []finding{fine(is + means)}
}
