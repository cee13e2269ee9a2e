package main

import "strings"

// right is a set of rights that an application needs on a table or a view.
type right struct {
	on   string
	each []string
}

func rightsOn(on, each string) right { return right{on, strings.Split(each, ", ")} }

// rare is the table that only package quorum uses.
const rare = "dblock_incarnation"

// Rights of docs/privileges; a test compares them.
var (
	postgresRights = []right{
		rightsOn("dblock_schema", "SELECT"),
		rightsOn("dblock_holders", "SELECT"),
		rightsOn("dblock_sessions", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_heartbeats", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_names", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_locks", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_shares", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_waiters", "SELECT, INSERT, DELETE"),
		rightsOn("dblock_guards", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_wanted", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_runs", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_events", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_watchers", "SELECT, INSERT, DELETE"),
		rightsOn(rare, "SELECT, INSERT, UPDATE"),
	}
	mysqlRights = []right{
		rightsOn("dblock_schema", "SELECT"),
		rightsOn("dblock_clock", "SELECT"),
		rightsOn("dblock_sessions", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_heartbeats", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_locks", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_shares", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_waiters", "SELECT, INSERT, DELETE"),
		rightsOn("dblock_guards", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_wanted", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_runs", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn("dblock_events", "SELECT, INSERT, DELETE"),
		rightsOn("dblock_watchers", "SELECT, INSERT, UPDATE, DELETE"),
		rightsOn(rare, "SELECT, INSERT, UPDATE"),
	}
)

// postgresFunctions can be executed by all users, unless that was revoked from PUBLIC.
var postgresFunctions = []string{
	"dblock_now()", "dblock_durable()", "dblock_epoch(text)", "dblock_make(text)", "dblock_insert(text)",
	"dblock_lock(text)", "dblock_wait(text)", "dblock_within(regprocedure, text)", "dblock_claims(text, jsonb, bigint)",
}

// lacking judges the rights that a user lacks, each "RIGHT on table".
func lacking(user string, rights []string, file string) (made []finding) {
	var usual, rarely []string
	for _, r := range rights {
		if strings.HasSuffix(r, " "+rare) {
			rarely = append(rarely, r)
		} else {
			usual = append(usual, r)
		}
	}
	if len(usual) > 0 {
		made = append(made, problem(user+" lacks "+strings.Join(usual, ", "), "grant what docs/privileges/"+file+
			" has, or connect as the application does"))
	}
	if len(rarely) > 0 {
		made = append(made, note(user+" lacks "+strings.Join(rarely, ", ")+", which package quorum needs",
			"grant it where quorum is used"))
	}
	if len(made) == 0 {
		made = append(made, fine(user+" has all rights of docs/privileges/"+file))
	}
	return made
}
