package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

var mysqlChecks = []check{
	{"version", mysqlVersion},
	{"primary", mysqlPrimary},
	{"cluster", cluster},
	{"schema", schema},
	{"settings", mysqlSettings},
	{"sessions", builds},
	{"TTL", ttls},
	{"privileges", mysqlPrivileges},
	{"KILL", unlessPolled(kills)},
	{"connections", mysqlConnections},
	{"statements", unlessPolled(mysqlStatements)},
	{"time-outs", mysqlTimeouts},
	{"durability", mysqlDurability},
	{"transactions", unlessPolled(mysqlTransactions)},
	{"clock", clocks},
}

// values returns the named variables that the server has, by their names in lower case. of is
// "SESSION VARIABLES", "GLOBAL VARIABLES" or "GLOBAL STATUS". A variable without a value in the
// session has the server's value in both.
func (e *examination) values(ctx context.Context, of string, names ...string) (map[string]string, error) {
	rows, err := e.QueryContext(ctx, "SHOW "+of+" WHERE Variable_name IN ('"+strings.Join(names, "', '")+"')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[strings.ToLower(name)] = value
	}
	return values, rows.Err()
}

func isOn(value string) bool { return value != "" && value != "OFF" && value != "0" }

// errorNumber returns the server's number of an error; 0: the error is not the server's.
func errorNumber(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

func isMariaDB(version string) bool { return strings.Contains(version, "MariaDB") }

func isTiDB(version string) bool { return strings.Contains(version, "TiDB") }

func isVitess(version string) bool { return strings.Contains(version, "Vitess") }

// unlessPolled leaves a check out on TiDB and Vitess, which have nothing of the kind.
func unlessPolled(
	look func(ctx context.Context, e *examination) ([]finding, error),
) func(ctx context.Context, e *examination) ([]finding, error) {
	return func(ctx context.Context, e *examination) ([]finding, error) {
		var version string
		err := e.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
		if err != nil || isTiDB(version) || isVitess(version) {
			return nil, err
		}
		return look(ctx, e)
	}
}

func mysqlVersion(ctx context.Context, e *examination) ([]finding, error) {
	var version string
	if err := e.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return nil, err
	}
	if isMariaDB(version) {
		return found(versionOf("MariaDB", version))
	}
	is, err := e.values(ctx, "GLOBAL VARIABLES", "aurora_version")
	if err != nil {
		return nil, err
	}
	if is["aurora_version"] != "" {
		return found(aurora(version))
	}
	return found(versionOf("MySQL", version))
}

// mysqlPrimary checks whether this session can write.
func mysqlPrimary(ctx context.Context, e *examination) ([]finding, error) {
	is, err := e.values(ctx, "SESSION VARIABLES", "read_only", "super_read_only", "innodb_read_only",
		"transaction_read_only", "tx_read_only")
	switch {
	case err != nil:
		return nil, err
	case isOn(is["read_only"]) || isOn(is["super_read_only"]) || isOn(is["innodb_read_only"]):
		return found(problem("the server is read-only, as replicas are: nothing can be locked here (ErrReadOnly)",
			"connect to the primary"))
	case isOn(is["transaction_read_only"]) || isOn(is["tx_read_only"]):
		return found(problem("sessions of this data source are read-only (transaction_read_only): nothing can be "+
			"locked (ErrReadOnly)", "leave it off in the data source"))
	}
	return found(fine("the server accepts writes"))
}

// mysqlSettings makes the engine examine a connection, as it does for each client.
func mysqlSettings(ctx context.Context, e *examination) ([]finding, error) {
	up, err := e.locks().Backend.Upkeep(ctx, "doctor")
	if err != nil {
		return found(problem(fmt.Sprintf("clients refuse connections of this data source: %v", because(ctx, err)),
			"change the data source"))
	}
	_ = up.Close()
	is, err := e.values(ctx, "SESSION VARIABLES", "version", "log_bin", "binlog_format", "sql_select_limit")
	switch limit, _ := strconv.ParseUint(is["sql_select_limit"], 10, 64); {
	case err != nil:
		return nil, err
	case limit < math.MaxInt32 && (limit > 0 || !isVitess(is["version"])): // reset on the connection above
		return found(problem(fmt.Sprintf("sql_select_limit is %d, as --safe-updates sets it: clients refuse "+
			"connections of this data source, since lists would be cut short", limit),
			"leave it at its default"))
	case isOn(is["log_bin"]) && is["binlog_format"] == "STATEMENT":
		return found(problem("binlog_format is STATEMENT, which cannot log READ COMMITTED: dblock's writes fail",
			"set binlog_format = ROW"))
	}
	return found(fine("clients accept connections of this data source"))
}

// Errors of the server for a missing right, table, and column.
const (
	deniedTable  = 1142
	deniedColumn = 1143
	noSuchTable  = 1146
	noSuchColumn = 1054
)

// mysqlPrivileges makes the server prepare a statement for each right, which it refuses without the
// right. None is run. No table lists the rights that come from a role.
func mysqlPrivileges(ctx context.Context, e *examination) ([]finding, error) {
	var user string
	if err := e.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&user); err != nil {
		return nil, err
	}
	var lacks []string
	for _, r := range mysqlRights {
		for _, each := range r.each {
			switch denied, err := e.denies(ctx, each, r.on); {
			case errorNumber(err) == noSuchTable:
				return noTables("rights on them cannot be tried")
			case err != nil:
				return nil, err
			case denied:
				lacks = append(lacks, each+" on "+r.on)
			}
		}
	}
	return lacking(user, lacks, "mysql-app.sql"), nil
}

// denies reports whether a right is missing.
func (e *examination) denies(ctx context.Context, right, on string) (bool, error) {
	text := "SELECT 1 FROM " + on
	switch right {
	case "INSERT":
		text = "INSERT INTO " + on + " () VALUES ()"
	case "UPDATE":
		text = "UPDATE " + on + " SET no_such_column = 1" // rights are checked before columns
	case "DELETE":
		text = "DELETE FROM " + on + " WHERE false"
	}
	statement, err := e.PrepareContext(ctx, text)
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

// wasKilled is the server's error for a statement that KILL QUERY has ended.
const wasKilled = 1317

// kills ends a wait of its own with KILL QUERY, as a grant ends the sleep of a listening client. It
// waits for a named lock, since on MariaDB a KILL of SLEEP may delay all other sleeping statements.
// A second named lock identifies the waiting connection: behind a proxy, ids of connections may be
// another server's.
func kills(ctx context.Context, e *examination) ([]finding, error) {
	is, err := e.values(ctx, "GLOBAL VARIABLES", "wsrep_on")
	if err != nil {
		return nil, err
	}
	if isOn(is["wsrep_on"]) {
		return found(note("Galera's named locks are of one node: clients look for grants instead of listening",
			"see cluster"))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sleeper, err := e.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer sleeper.Close()
	killer, err := e.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer killer.Close()
	tag, gate := "dblock:"+rand.Text(), "dblock:"+rand.Text()
	if err := named(ctx, sleeper, tag); err != nil {
		return nil, err
	}
	if err := named(ctx, killer, gate); err != nil {
		return nil, err
	}
	slept := make(chan error, 1)
	go func() { slept <- e.sleep(ctx, sleeper, gate) }()
	switch over := killUntil(ctx, killer, tag, slept); {
	case errors.Is(over, errAwake):
		return found(fine("KILL QUERY reaches connections of this user: a lock is handed over in milliseconds. " +
			"Clients of other users need CONNECTION_ADMIN to be woken at once"))
	case errors.Is(over, errAsleep), errorNumber(over) != 0:
		return found(note(fmt.Sprintf("KILL QUERY does not reach a connection of this user (%v): clients look for "+
			"grants instead of listening", over), "connect without a proxy, or through one that passes it on"))
	default:
		return nil, over
	}
}

// named takes a named lock.
func named(ctx context.Context, conn *sql.Conn, name string) error {
	var got sql.NullBool
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+name+"', 0)").Scan(&got)
	if err == nil && !got.Bool {
		err = errors.New("the server gives no named locks")
	}
	return err
}

var (
	errAwake  = errors.New("the wait was interrupted")
	errAsleep = errors.New("the wait was not interrupted")
)

// sleep waits for a named lock that another connection has, and returns errAwake if the wait was
// interrupted.
func (e *examination) sleep(ctx context.Context, conn *sql.Conn, gate string) error {
	var outcome int
	err := conn.QueryRowContext(ctx, fmt.Sprintf("SELECT COALESCE(GET_LOCK('%s', %d), 2)", gate,
		int(e.echo/time.Second))).Scan(&outcome)
	switch {
	case errorNumber(err) == wasKilled || err == nil && outcome == 2:
		return errAwake
	case err != nil:
		return err
	}
	return errAsleep
}

// killUntil repeats KILL until the wait has ended, since a KILL before the wait is lost. It returns
// the outcome of the wait, or the error of KILL if the wait was not interrupted.
func killUntil(ctx context.Context, conn *sql.Conn, tag string, slept <-chan error) error {
	var refused error
	for {
		if _, err := conn.ExecContext(ctx, "KILL QUERY IS_USED_LOCK('"+tag+"')"); err != nil {
			refused = err
		}
		select {
		case err := <-slept:
			if errors.Is(err, errAsleep) && refused != nil {
				return refused
			}
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// mysqlClient and mariadbClient are the connections of a client's pool that the client needs before
// the application has any.
const mysqlClient, mariadbClient = 4, 5

// mysqlConnections leaves out doctor's own connections, which end with it.
func mysqlConnections(ctx context.Context, e *examination) (made []finding, err error) {
	own := e.own()
	is, err := e.values(ctx, "SESSION VARIABLES", "version", "max_connections", "max_user_connections")
	if err != nil {
		return nil, err
	}
	status, err := e.values(ctx, "GLOBAL STATUS", "Threads_connected")
	if err != nil {
		return nil, err
	}
	needs := mysqlClient
	if isMariaDB(is["version"]) {
		needs = mariadbClient
	}
	all := limit{of: "the server", most: leading(is["max_connections"]),
		use: max(0, leading(status["threads_connected"])-own)}
	made = append(made, all.judge(needs))
	user := limit{most: leading(is["max_user_connections"])}
	err = e.QueryRowContext(ctx, "SELECT CONCAT('user ', SUBSTRING_INDEX(USER(), '@', 1)), COUNT(*) FROM "+
		"information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1)").
		Scan(&user.of, &user.use)
	if err != nil {
		return made, err
	}
	user.use = max(0, user.use-own)
	return append(made, user.judge(needs)), nil
}

// mysqlPrepared is the number of statements that a busy client prepares, on all its connections.
const mysqlPrepared = 165

func mysqlStatements(ctx context.Context, e *examination) ([]finding, error) {
	is, err := e.values(ctx, "GLOBAL VARIABLES", "max_prepared_stmt_count")
	if err != nil {
		return nil, err
	}
	status, err := e.values(ctx, "GLOBAL STATUS", "Prepared_stmt_count")
	if err != nil {
		return nil, err
	}
	return found(preparedStatements(leading(status["prepared_stmt_count"]), leading(is["max_prepared_stmt_count"])))
}

// preparedStatements judges the number of statements left. Locks work without them.
func preparedStatements(use, most int) finding {
	what := fmt.Sprintf("%d of the %d prepared statements that the server allows (max_prepared_stmt_count) are in "+
		"use; each client prepares up to %d", use, most, mysqlPrepared)
	if most-use < mysqlPrepared || use*5 >= most*4 {
		return note(what+". Where none is left dblock takes more round trips, and other programs fail (error 1461)",
			"raise max_prepared_stmt_count, or close unused statements")
	}
	return fine(what)
}

var mysqlLimits = []timeout{
	{"innodb_lock_wait_timeout", 0, takeover, cutsLockTx},
	{"max_execution_time", time.Second, takeover, cutsLockTx}, // milliseconds; ends SELECT FOR UPDATE, too
	{"max_statement_time", time.Second, takeover, cutsLockTx},
	// These variables of MariaDB are in whole seconds.
	{"idle_transaction_timeout", 0, pause, cutsPaused},
	{"idle_readonly_transaction_timeout", 0, pause, cutsPaused},
	{"idle_write_transaction_timeout", 0, pause, cutsPaused},
}

// pause is the time for which a process may be stopped or starved between two statements of a
// transaction, with a margin.
const (
	pause      = 5 * time.Second
	cutsPaused = "a transaction is ended when its process pauses for that long, also one of dblock's or under LockTx"
)

func mysqlTimeouts(ctx context.Context, e *examination) (made []finding, err error) {
	var names []string
	for _, t := range mysqlLimits {
		names = append(names, t.name)
	}
	session, err := e.values(ctx, "SESSION VARIABLES", names...)
	if err != nil {
		return nil, err
	}
	global, err := e.values(ctx, "GLOBAL VARIABLES", names...)
	if err != nil {
		return nil, err
	}
	for _, t := range mysqlLimits {
		unit := time.Second
		if t.name == "max_execution_time" {
			unit = time.Millisecond
		}
		value, _ := strconv.ParseFloat(session[t.name], 64) // "": the server has no such variable
		from := "of the server"
		if session[t.name] != global[t.name] {
			from = "of the session"
		}
		if f, is := t.judge(time.Duration(value*float64(unit)), from); is {
			made = append(made, f)
		}
	}
	if len(made) == 0 {
		made = append(made, fine("none cuts off clients or waiters"))
	}
	return made, nil
}

func mysqlDurability(ctx context.Context, e *examination) ([]finding, error) {
	is, err := e.values(ctx, "GLOBAL VARIABLES", "innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog",
		"innodb_doublewrite")
	if err != nil {
		return nil, err
	}
	return durable(is), nil
}

// durable judges the settings that decide which commits a crash can undo. MariaDB's
// innodb_flush_log_at_trx_commit=3 waits for the disk, too.
func durable(is map[string]string) (made []finding) {
	if flush := is["innodb_flush_log_at_trx_commit"]; flush == "0" || flush == "2" {
		made = append(made, problem("innodb_flush_log_at_trx_commit is "+flush+": a crash of the machine can undo "+
			"grants on which holders rely", "set it to 1"))
	}
	if isOn(is["log_bin"]) && is["sync_binlog"] != "1" {
		made = append(made, note("sync_binlog is "+is["sync_binlog"]+": after a crash of the machine replicas may "+
			"lack the newest grants, or have some that the server lacks", "set it to 1"))
	}
	if !isOn(is["innodb_doublewrite"]) {
		made = append(made, note("innodb_doublewrite is off: a crash of the machine may destroy the database, "+
			"unless its file system writes whole pages", "set it to ON"))
	}
	if len(made) == 0 {
		made = append(made, fine("commits wait for the disk"))
	}
	return made
}

// needsProcess is the server's error for a missing right PROCESS.
const needsProcess = 1227

// mysqlTransactions covers the whole server, since the oldest transaction of any database delays
// purge. trx_started is in the server's time zone, whatever the session's.
func mysqlTransactions(ctx context.Context, e *examination) ([]finding, error) {
	const open = "SELECT TIMESTAMPDIFF(MICROSECOND, trx_started, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')) " +
		"/ 1000000 AS age, trx_mysql_thread_id AS id, trx_rows_locked AS locked FROM information_schema.innodb_trx"
	var t transactions
	var seconds float64
	err := e.QueryRowContext(ctx, "SELECT COUNT(*) OVER (), age, CONCAT('connection ', id, ', which has locked ', "+
		"locked, ' rows') FROM ("+open+") o WHERE age > ? ORDER BY age DESC LIMIT 1", e.older.Seconds()).
		Scan(&t.n, &seconds, &t.worst)
	switch {
	case errorNumber(err) == needsProcess:
		return found(unknown("long transactions are hidden from this user", "GRANT PROCESS ON *.* TO it to see them"))
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	t.age = time.Duration(seconds * float64(time.Second))
	return found(t.judge(e, "Purge keeps what was deleted since, and where one has locked a name, its waiters wait",
		"end it (KILL)"))
}
