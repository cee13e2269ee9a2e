package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/migrate"
)

// rare is the table that only package quorum uses.
const rare = "dblock_incarnation"

// rights are those of docs/privileges: by each right, the tables and views that it is needed on. A
// test compares them.
var rights = map[migrate.Engine]map[string][]string{
	migrate.Postgres: {
		"SELECT": {"schema", "holders", "sessions", "heartbeats", "names", "locks", "shares", "waiters", "guards",
			"wanted", "runs", "events", "watchers", "incarnation"},
		"INSERT": {"sessions", "heartbeats", "names", "locks", "shares", "waiters", "guards", "wanted", "runs",
			"events", "watchers", "incarnation"},
		"UPDATE": {"sessions", "heartbeats", "names", "locks", "shares", "waiters", "guards", "wanted", "runs",
			"events", "incarnation"},
		"DELETE": {"sessions", "heartbeats", "names", "locks", "shares", "waiters", "guards", "wanted", "runs",
			"events", "watchers"},
	},
	migrate.MySQL: {
		"SELECT": {"schema", "clock", "sessions", "heartbeats", "locks", "shares", "waiters", "guards", "wanted",
			"runs", "events", "watchers", "incarnation"},
		"INSERT": {"sessions", "heartbeats", "locks", "shares", "waiters", "guards", "wanted", "runs", "events",
			"watchers", "incarnation"},
		"UPDATE": {"sessions", "heartbeats", "locks", "shares", "waiters", "guards", "wanted", "runs",
			"watchers", "incarnation"},
		"DELETE": {"sessions", "heartbeats", "locks", "shares", "waiters", "guards", "wanted", "runs", "events",
			"watchers"},
	},
}

// functions of PostgreSQL can be executed by all users, unless that was revoked from PUBLIC.
var functions = []string{
	"dblock_now()", "dblock_durable()", "dblock_epoch(text)", "dblock_make(text)", "dblock_insert(text)",
	"dblock_lock(text)", "dblock_wait(text)", "dblock_within(regprocedure, text)", "dblock_claims(text, jsonb, bigint)",
}

// needed lists the rights of an engine's application, each "RIGHT on table".
func needed(engine migrate.Engine) (all []string) {
	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
		for _, table := range rights[engine][right] {
			all = append(all, right+" on dblock_"+table)
		}
	}
	return all
}

// ofTheApplication reports whether those who only look need no such right.
func ofTheApplication(right string) bool {
	action, table, _ := strings.Cut(right, " on dblock_")
	return action != "SELECT" || slices.Contains([]string{"guards", "wanted", "watchers", "incarnation"}, table)
}

// privileges lists the rights that the user lacks. On SQLite a file that this user may not write
// fails the session.
func privileges(ctx context.Context, e *examination) (made []finding, err error) {
	var user, file string
	var lacks []string
	switch e.engine {
	case migrate.Postgres:
		file = "docs/privileges/postgres-app.sql"
		user, lacks, err = e.lacksOnPostgres(ctx)
	case migrate.MySQL:
		file = "docs/privileges/mysql-app.sql"
		user, lacks, err = e.lacksOnMySQL(ctx)
	}
	if err != nil || user == "" {
		return nil, err
	}
	e.looks = !slices.ContainsFunc(needed(e.engine), func(right string) bool {
		return !strings.HasPrefix(right, "SELECT ") && !slices.Contains(lacks, right)
	})
	if e.looks {
		may := fmt.Sprintf("%s may look, and take no lock (docs/privileges/%s-people.sql)", user, e.engine)
		made = append(made, note(may, "give the application's data source to have its rights, its session and its "+
			"listening examined"))
		if lacks = slices.DeleteFunc(lacks, ofTheApplication); len(lacks) > 0 {
			made = append(made, problem(user+" lacks "+strings.Join(lacks, ", "), "grant it, to look at all there is"))
		}
		return made, nil
	}
	var usual, rarely []string
	for _, r := range lacks {
		if strings.HasSuffix(r, " "+rare) {
			rarely = append(rarely, r)
		} else {
			usual = append(usual, r)
		}
	}
	if len(usual) > 0 {
		made = append(made, problem(user+" lacks "+strings.Join(usual, ", "), "grant what "+file+
			" has, or connect as the application does"))
	}
	if len(rarely) > 0 {
		made = append(made, note(user+" lacks "+strings.Join(rarely, ", ")+", which package quorum needs",
			"grant it where quorum is used"))
	}
	if len(lacks) == 0 {
		made = append(made, fine(user+" has all rights of "+file))
	}
	return made, nil
}

// missing lists the rights of $1 on tables, and on the functions of $2, that a user of PostgreSQL
// lacks, and the tables of which row level security hides all rows from it.
const missing = `
	WITH w AS (SELECT n, w, split_part(w, ' on ', 1) AS a_right, to_regclass(split_part(w, ' on ', 2)) AS a_table
		FROM unnest(string_to_array($1, ';')) WITH ORDINALITY u (w, n))
	SELECT w FROM (
		SELECT n, w FROM w WHERE NOT has_table_privilege(a_table, a_right)
		UNION ALL SELECT 1000 + n, 'EXECUTE on ' || f FROM unnest(string_to_array($2, ';')) WITH ORDINALITY u (f, n)
		 WHERE NOT has_function_privilege(to_regprocedure(f), 'EXECUTE')
		UNION ALL SELECT 2000 + n, 'a policy of row level security on ' || a_table FROM w
		 WHERE a_right = 'SELECT' AND row_security_active(a_table) AND NOT EXISTS (SELECT FROM pg_policy p
		       WHERE p.polrelid = a_table AND p.polpermissive
		         AND EXISTS (SELECT FROM unnest(p.polroles) r WHERE r = 0 OR pg_has_role(r, 'USAGE')))
	) lacks ORDER BY n`

func (e *examination) lacksOnPostgres(ctx context.Context) (user string, lacks []string, err error) {
	if err := e.QueryRowContext(ctx, "SELECT current_user").Scan(&user); err != nil {
		return "", nil, err
	}
	rows, err := e.QueryContext(ctx, missing, strings.Join(needed(e.engine), ";"), strings.Join(functions, ";"))
	if err != nil {
		return "", nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var each string
		if err := rows.Scan(&each); err != nil {
			return "", nil, err
		}
		lacks = append(lacks, each)
	}
	return user, lacks, rows.Err()
}

// lacksOnMySQL makes the server prepare a statement for each right, which it refuses without the
// right. None is run. No table lists the rights that come from a role.
func (e *examination) lacksOnMySQL(ctx context.Context) (user string, lacks []string, err error) {
	if err := e.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&user); err != nil {
		return "", nil, err
	}
	for _, each := range needed(e.engine) {
		right, table, _ := strings.Cut(each, " on ")
		denied, err := e.denies(ctx, right, table)
		if err != nil {
			return "", nil, err
		}
		if denied {
			lacks = append(lacks, each)
		}
	}
	return user, lacks, nil
}

// denies reports whether a right is missing.
func (e *examination) denies(ctx context.Context, right, table string) (bool, error) {
	const deniedTable, deniedColumn, noSuchColumn = 1142, 1143, 1054
	statement, err := e.PrepareContext(ctx, fmt.Sprintf(map[string]string{
		"SELECT": "SELECT 1 FROM %s",
		"INSERT": "INSERT INTO %s () VALUES ()",
		"UPDATE": "UPDATE %s SET no_such_column = 1", // rights are checked before columns
		"DELETE": "DELETE FROM %s WHERE false",
	}[right], table))
	switch errorNumber(err) {
	case deniedTable, deniedColumn:
		return true, nil
	case noSuchColumn:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return false, statement.Close()
}
