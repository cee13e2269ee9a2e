package main

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/pgserver"
)

var postgresChecks = []check{
	{"version", postgresVersion},
	{"primary", postgresPrimary},
	{"schema", schema},
	{"sessions", builds},
	{"privileges", postgresPrivileges},
	{"pooler", pooler},
	{"LISTEN", listens},
	{"connections", postgresConnections},
	{"time-outs", postgresTimeouts},
	{"durability", postgresDurability},
	{"replication", postgresReplication},
	{"TTL", ttls},
	{"transactions", postgresTransactions},
	{"vacuum", postgresVacuum},
	{"clock", clocks},
}

func postgresVersion(ctx context.Context, e *examination) ([]finding, error) {
	var whole, version string
	var isAurora bool
	if err := e.QueryRowContext(ctx,
		"SELECT version(), current_setting('server_version'), to_regproc('aurora_version') IS NOT NULL").Scan(&whole,
		&version, &isAurora); err != nil {
		return nil, err
	}
	if isAurora {
		return found(aurora(version))
	}
	if !strings.HasPrefix(whole, "PostgreSQL ") {
		version = whole
	}
	return found(versionOf("PostgreSQL", version))
}

// postgresPrimary checks whether this session can write.
func postgresPrimary(ctx context.Context, e *examination) ([]finding, error) {
	var readOnly bool
	var source string
	err := e.QueryRowContext(ctx, "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean, "+
		"(SELECT source FROM pg_settings WHERE name = 'default_transaction_read_only')").
		Scan(&e.standby, &readOnly, &source)
	switch {
	case err != nil:
		return nil, err
	case e.standby:
		return found(problem("the server is a standby: nothing can be locked here (ErrReadOnly)",
			"connect to the primary (target_session_attrs=read-write, all hosts in the data source)"))
	case readOnly:
		return found(problem("sessions of this user are read-only (default_transaction_read_only, "+source+
			"): nothing can be locked (ErrReadOnly)", "switch it off for this user"))
	}
	return found(fine("the server is a primary, and this user may write"))
}

func postgresPrivileges(ctx context.Context, e *examination) ([]finding, error) {
	var wanted []string
	for _, r := range postgresRights {
		for _, each := range r.each {
			wanted = append(wanted, each+" on "+r.on)
		}
	}
	var user string
	var none bool
	if err := e.QueryRowContext(ctx, "SELECT current_user, to_regclass('dblock_locks') IS NULL").Scan(&user,
		&none); err != nil {
		return nil, err
	}
	if none {
		return noTables("rights on them cannot be tried")
	}
	rights, err := column(e.QueryContext(ctx, `SELECT w FROM unnest(string_to_array($1, ',')) w
		WHERE NOT has_table_privilege(to_regclass(split_part(w, ' on ', 2)), split_part(w, ' on ', 1))`, strings.Join(wanted, ",")))
	if err != nil {
		return nil, err
	}
	functions, err := column(e.QueryContext(ctx, `SELECT 'EXECUTE on ' || f FROM unnest(string_to_array($1, ';')) f
		WHERE NOT has_function_privilege(to_regprocedure(f), 'EXECUTE')`, strings.Join(postgresFunctions, ";")))
	if err != nil {
		return nil, err
	}
	hidden, err := e.hidden(ctx, user)
	return append(lacking(user, append(rights, functions...), "postgres-app.sql"), hidden...), err
}

// rowSecurity lists the tables on which row level security applies to this user, and whether the
// user has a policy there. Without one it sees no row.
const rowSecurity = `SELECT c.relname, EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive
		AND EXISTS (SELECT 1 FROM unnest(p.polroles) r WHERE r = 0 OR pg_has_role(r, 'USAGE')))
	FROM unnest(string_to_array($1, ',')) w JOIN pg_class c ON c.oid = to_regclass(w) WHERE row_security_active(c.oid)`

// hidden reports the tables of which row level security may hide rows.
func (e *examination) hidden(ctx context.Context, user string) (made []finding, err error) {
	var names, whole, some []string
	for _, r := range postgresRights {
		names = append(names, r.on)
	}
	rows, err := e.QueryContext(ctx, rowSecurity, strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var policy bool
		if err := rows.Scan(&name, &policy); err != nil {
			return nil, err
		}
		if policy {
			some = append(some, name)
		} else {
			whole = append(whole, name)
		}
	}
	if len(whole) > 0 {
		made = append(made, problem("row level security hides all rows from "+user+" of "+strings.Join(whole, ", "),
			pgserver.RowSecurity))
	}
	if len(some) > 0 {
		made = append(made, note("row level security applies to "+user+" on "+strings.Join(some, ", "),
			"see that its policies let all rows be read and written"))
	}
	return made, rows.Err()
}

// postgresClient is the number of connections that a client has beside its pool: for heartbeats, to
// listen, and two for work beside the application's transactions.
const postgresClient = 4

// postgresConnections leaves out doctor's own sessions, which end with it. A session
// counts as a client's if this user may not see its kind.
func postgresConnections(ctx context.Context, e *examination) (made []finding, err error) {
	own := e.own()
	rows, err := e.QueryContext(ctx, `
		WITH used AS (SELECT datname, usename FROM pg_stat_activity WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend')
		SELECT 'the server', (SELECT sum(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END)
		  FROM pg_settings WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')), (SELECT count(*) FROM used)
		UNION ALL SELECT 'database ' || datname, datconnlimit, (SELECT count(*) FROM used u WHERE u.datname = d.datname) FROM pg_database d WHERE datname = current_database()
		UNION ALL SELECT 'user ' || rolname, rolconnlimit, (SELECT count(*) FROM used WHERE usename = rolname) FROM pg_roles WHERE rolname = session_user`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var l limit
		if err := rows.Scan(&l.of, &l.most, &l.use); err != nil {
			return nil, err
		}
		l.use = max(0, l.use-own)
		made = append(made, l.judge(postgresClient))
	}
	return made, rows.Err()
}

const (
	cutsLockTx   = "a LockTx that waits is cut off before the lock of a crashed client is free"
	cutsListener = "clients that wait in silence lose the connection to listen on, and make another"
)

var postgresLimits = []timeout{
	{"statement_timeout", time.Second, takeover, cutsLockTx},
	{"transaction_timeout", time.Second, takeover, cutsLockTx},
	{"lock_timeout", 0, takeover, cutsLockTx},
	{"idle_in_transaction_session_timeout", time.Second, 0, ""},
	// a heartbeat each 3 s, a listener's sign of life each 30 s
	{"idle_session_timeout", 4 * time.Second, 31 * time.Second, cutsListener},
}

// postgresTimeouts reads the settings of this session: from the user, the database, or the server.
func postgresTimeouts(ctx context.Context, e *examination) (made []finding, err error) {
	for _, t := range postgresLimits {
		var millis int64
		var source string
		err := e.QueryRowContext(ctx, "SELECT setting::bigint, source FROM pg_settings WHERE name = $1",
			t.name).Scan(&millis, &source)
		if err == sql.ErrNoRows { // an older server
			continue
		}
		if err != nil {
			return made, err
		}
		if f, is := t.judge(time.Duration(millis)*time.Millisecond, source); is {
			made = append(made, f)
		}
	}
	if len(made) == 0 {
		made = append(made, fine("none cuts off clients or waiters"))
	}
	return made, nil
}

func postgresDurability(ctx context.Context, e *examination) (made []finding, err error) {
	var fsync, pages bool
	var commit string
	err = e.QueryRowContext(ctx, "SELECT current_setting('fsync')::boolean, "+
		"current_setting('full_page_writes')::boolean, current_setting('synchronous_commit')").
		Scan(&fsync, &pages, &commit)
	if err != nil {
		return nil, err
	}
	if !fsync {
		made = append(made, problem("fsync is off: a crash of the machine can undo grants on which holders "+
			"rely, and may destroy the database", "set fsync = on"))
	}
	if !pages {
		made = append(made, note("full_page_writes is off: a crash of the machine may destroy the database, unless "+
			"its file system writes whole pages", "set full_page_writes = on"))
	}
	if commit == "off" {
		made = append(made, note("synchronous_commit is off: grants wait for the disk all the same, what the "+
			"application writes under a lock does not", "set it to on for transactions that matter"))
	}
	if len(made) == 0 {
		made = append(made, fine("commits wait for the disk (synchronous_commit is "+commit+")"))
	}
	return made, nil
}

// followers counts the standbys that replay the whole server: neither backups nor subscribers.
const followers = `SELECT count(*) FROM pg_stat_replication r WHERE coalesce(state, '') <> 'backup'
	AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')`

// postgresReplication checks whether a failover can undo grants.
func postgresReplication(ctx context.Context, e *examination) ([]finding, error) {
	if e.standby {
		return found(fine("the server is a standby: replication shows on the primary"))
	}
	var r replication
	err := e.QueryRowContext(ctx, "SELECT ("+followers+"), ("+confirmers+
		"), current_setting('synchronous_standby_names'), current_setting('synchronous_commit')").
		Scan(&r.standbys, &r.confirm, &r.names, &r.commit)
	if err != nil {
		return nil, err
	}
	if r.standbys > 0 {
		e.failover = byPatroni
	} else { // the checkpoint that pg_control_checkpoint tells of may be of before a promotion
		err = e.QueryRowContext(ctx,
			"SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int").Scan(&r.timeline)
	}
	return []finding{r.judge()}, err
}

// confirmers counts the standbys that must confirm a commit. A standby counts if this user may not
// see its state.
const confirmers = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL OR sync_state IN ('sync', " +
	"'quorum') AND state = 'streaming'"

// replication describes the standbys of a primary.
type replication struct {
	standbys, confirm int
	names, commit     string // synchronous_standby_names, synchronous_commit
	timeline          int    // each promotion begins another; 0: not read
}

var countOfNames = regexp.MustCompile(`^\s*(?:(?i:FIRST|ANY)\s+)?(\d+)\s*\(`)

// needs returns the number of standbys that a commit waits for by synchronous_standby_names.
func (r replication) needs() int {
	if count := countOfNames.FindStringSubmatch(r.names); count != nil {
		return leading(count[1])
	}
	return 1
}

func (r replication) judge() finding {
	switch {
	case r.names == "" && r.standbys > 0:
		return note("a standby follows asynchronously: a failover may lose the newest grants, and two clients "+
			"believe in one lock for a while",
			"check tokens (Guard, package fence), or set synchronous_standby_names (Patroni: synchronous_mode, "+
				"which without synchronous_mode_strict empties it while no standby confirms)")
	case r.names == "" && r.timeline > 1:
		return note(fmt.Sprintf("no standby follows, although this server was promoted, or restored, from another "+
			"(timeline %d): there is nothing to fail over to", r.timeline),
			"bring the old primary back as a standby, unless there is to be none")
	case r.names == "":
		return fine("no standby follows")
	case r.commit == "local":
		return note("synchronous_commit is local: grants do not wait for the synchronous standby, and a failover "+
			"may lose the newest", "set synchronous_commit = on for this user")
	case r.confirm < r.needs():
		return problem(fmt.Sprintf("commits wait for %s, and %d of the %d standbys that must confirm are streaming: "+
			"until they are, commits hang, and nothing is locked or released", r.names, r.confirm, r.needs()),
			"bring the standby back, or change synchronous_standby_names")
	case r.standbys <= r.needs():
		return note(fmt.Sprintf("commits wait for %s, and no other standby follows: without it they hang, or wait "+
			"for none where Patroni then empties synchronous_standby_names (synchronous_mode without "+
			"synchronous_mode_strict), and a failover may lose grants", r.names),
			"add a standby, and check tokens (Guard, package fence)")
	}
	return fine("commits wait for " + r.names)
}

// postgresTransactions covers this database: its transactions may have locked names. A prepared
// transaction has no session.
func postgresTransactions(ctx context.Context, e *examination) ([]finding, error) {
	const open = `SELECT extract(epoch FROM clock_timestamp() - xact_start) AS age, format('pid %s, user %s, %s, %s', pid, usename, application_name, state) AS what
		FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND xact_start IS NOT NULL
		UNION ALL SELECT extract(epoch FROM clock_timestamp() - prepared), format('prepared as %L by user %s', gid, owner) FROM pg_prepared_xacts WHERE database = current_database()`
	var t transactions
	var seconds float64
	var hidden int
	err := e.QueryRowContext(ctx, "WITH open AS ("+open+`), long AS (SELECT * FROM open WHERE age > $1)
		SELECT (SELECT count(*) FROM long), coalesce((SELECT max(age) FROM long), 0)::float8, coalesce((SELECT what FROM long ORDER BY age DESC LIMIT 1), ''),
		(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = '<insufficient privilege>')`, e.older.Seconds()).
		Scan(&t.n, &seconds, &t.worst, &hidden)
	if err != nil {
		return nil, err
	}
	t.age = time.Duration(seconds * float64(time.Second))
	made := []finding{t.judge(e, "If one has locked a name, its waiters wait",
		"end it (pg_terminate_backend, ROLLBACK PREPARED); set idle_in_transaction_session_timeout")}
	if hidden > 0 {
		made = append(made, unknown(fmt.Sprintf("the transactions of %d sessions of other users are hidden from "+
			"this one", hidden), "GRANT pg_read_all_stats TO this user to see them"))
	}
	return made, nil
}
