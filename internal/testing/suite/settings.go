package suite

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// core must hold whatever an application has set for its sessions.
func core(t *testing.T, e *env) {
	t.Run("exclusion", func(t *testing.T) { exclusion(t, e, 2, 8, 3) })
	t.Run("order", func(t *testing.T) { fifo(t, e, 4) })
	t.Run("cancel", func(t *testing.T) { cancelling(t, e) })
	t.Run("deadline", func(t *testing.T) { deadline(t, e) })
	t.Run("lease", func(t *testing.T) { leaseEnds(t, e) })
	t.Run("take-over", func(t *testing.T) { succession(t, e) })
	t.Run("owner", func(t *testing.T) { ownerElsewhere(t, e) })
}

// Params is a setting made with parameters of a DSN, which replace those that are there.
func Params(name string, params ...string) Setting {
	return Setting{Name: name, DSN: func(dsn string) string {
		base, query, _ := strings.Cut(dsn, "?")
		values, err := url.ParseQuery(query)
		if err != nil {
			panic(err) // of a DSN that dbtest made
		}
		for i := 0; i < len(params); i += 2 {
			key, value := params[i], params[i+1]
			if key != "_pragma" {
				values.Del(key)
			}
			what, _, _ := strings.Cut(value, "(") // of pragmas there may be several, but one of a kind
			values[key] = slices.DeleteFunc(values[key], func(v string) bool { return strings.HasPrefix(v, what+"(") })
			values.Add(key, value)
		}
		return base + "?" + strings.ReplaceAll(values.Encode(), "+", "%20") // pgx takes a plus for a plus
	}}
}

// apart is a setting that is not tried together with others.
func apart(s Setting) Setting {
	s.Apart = true
	return s
}

// PostgresSettings are what applications set in PostgreSQL, over pgx.
var PostgresSettings = []Setting{
	Params("time zone Australia/Lord_Howe", "timezone", "Australia/Lord_Howe", "datestyle", "German, DMY"),
	Params("isolation level read uncommitted", "default_transaction_isolation", "read uncommitted"),
	Params("isolation level repeatable read", "default_transaction_isolation", "repeatable read"),
	Params("isolation level serializable", "default_transaction_isolation", "serializable",
		"default_transaction_deferrable", "on"),
	Params("lock_timeout of 200ms", "lock_timeout", "200"),
	Params("statement_timeout of 1s", "statement_timeout", "1000", "idle_in_transaction_session_timeout", "1000"),
	Params("synchronous_commit off", "synchronous_commit", "off"),
	Params("values as text otherwise", "bytea_output", "escape", "intervalstyle", "sql_standard", "extra_float_digits",
		"-15"),
	Params("other plans", "plan_cache_mode", "force_generic_plan", "enable_seqscan", "off", "enable_nestloop", "off",
		"enable_indexonlyscan", "off",
		"join_collapse_limit", "1", "jit", "off"),
	Params("NULL by equality", "transform_null_equals", "on", "row_security", "off", "session_replication_role",
		"replica", "client_min_messages", "debug1"),
	Params("the simple protocol", "default_query_exec_mode", "simple_protocol"),
	Params("no prepared statements", "default_query_exec_mode", "exec"),
	// not with the simple protocol, which pgx refuses then
	Params("backslashes in strings", "standard_conforming_strings", "off"),
}

// PostgresReadOnly is how PostgreSQL is read-only, short of a standby.
var PostgresReadOnly = []Setting{Params("default_transaction_read_only", "default_transaction_read_only", "on")}

// MySQLSettings are what applications set in MySQL, MariaDBSettings in MariaDB, over go-sql-driver.
var (
	MySQLSettings = append([]Setting{
		Params("isolation level read uncommitted", "transaction_isolation", "'READ-UNCOMMITTED'"),
		Params("isolation level repeatable read", "transaction_isolation", "'REPEATABLE-READ'"),
		Params("isolation level serializable", "transaction_isolation", "'SERIALIZABLE'"),
		Params("max_execution_time of 1s", "max_execution_time", "1000", "innodb_lock_wait_timeout", "1"),
	}, bothSettings...)
	MariaDBSettings = append([]Setting{
		Params("isolation level read uncommitted", "tx_isolation", "'READ-UNCOMMITTED'"),
		Params("isolation level repeatable read", "tx_isolation", "'REPEATABLE-READ'", "innodb_snapshot_isolation",
			"1"),
		Params("isolation level serializable", "tx_isolation", "'SERIALIZABLE'"),
		Params("max_statement_time of 1s", "max_statement_time", "1", "innodb_lock_wait_timeout", "1"),
		Params("sql_mode ORACLE", "sql_mode", "'ORACLE'"),
		Params("lists as joins", "in_predicate_conversion_threshold", "2", "optimizer_use_condition_selectivity", "5"),
	}, bothSettings...)

	bothSettings = []Setting{
		Params("time zone +05:45", "time_zone", "'+05:45'", "loc", "America/St_Johns"),
		Params("clientFoundRows", "clientFoundRows", "true"),
		Params("parseTime off", "parseTime", "false"),
		Params("interpolateParams", "interpolateParams", "true"),
		Params("sql_mode empty", "sql_mode", "''"),
		Params("sql_mode strict and ANSI", "sql_mode",
			"'ANSI,TRADITIONAL,NO_ZERO_DATE,NO_AUTO_VALUE_ON_ZERO,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION'"),
		Params("limits of sorts and joins", "max_sort_length", "8", "sql_buffer_result", "1", "group_concat_max_len",
			"4", "div_precision_increment", "0"),
		Params("checks off", "unique_checks", "0", "foreign_key_checks", "0", "sql_auto_is_null", "1",
			"low_priority_updates", "1", "sql_notes", "0"),
		Params("sql_mode NO_BACKSLASH_ESCAPES", "sql_mode",
			"'NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY,ERROR_FOR_DIVISION_BY_ZERO'"),
	}
)

// TiDBSettings are what applications set in TiDB, over go-sql-driver.
var TiDBSettings = []Setting{
	Params("isolation level read committed", "transaction_isolation", "'READ-COMMITTED'"),
	Params("max_execution_time of 200ms", "max_execution_time", "200", "innodb_lock_wait_timeout", "1"),
	Params("time zone +05:45", "time_zone", "'+05:45'", "loc", "America/St_Johns"),
	Params("clientFoundRows", "clientFoundRows", "true"),
	Params("parseTime off", "parseTime", "false"),
	Params("interpolateParams", "interpolateParams", "true"),
	Params("sql_mode strict and ANSI", "sql_mode", "'ANSI,TRADITIONAL,NO_ZERO_DATE,NO_AUTO_VALUE_ON_ZERO'"),
	Params("foreign_key_checks off", "foreign_key_checks", "0"),
	Params("plans of statements that are not prepared are kept", "tidb_enable_non_prepared_plan_cache", "1"),
}

// VitessSettings are what applications set in Vitess, over go-sql-driver.
var VitessSettings = []Setting{
	Params("isolation level serializable", "transaction_isolation", "'SERIALIZABLE'"),
	Params("innodb_lock_wait_timeout of 1s", "innodb_lock_wait_timeout", "1"),
	Params("time zone +05:45", "time_zone", "'+05:45'", "loc", "America/St_Johns"),
	Params("clientFoundRows", "clientFoundRows", "true"),
	Params("parseTime off", "parseTime", "false"),
	Params("interpolateParams", "interpolateParams", "true"),
	Params("sql_mode strict and ANSI", "sql_mode", "'ANSI,TRADITIONAL,NO_ZERO_DATE,NO_AUTO_VALUE_ON_ZERO'"),
	Params("foreign_key_checks off", "foreign_key_checks", "0"),
	Params("unsigned subtraction", "sql_mode", "'NO_UNSIGNED_SUBTRACTION'"),
	Params("workload olap", "workload", "'olap'"),
}

// MySQLReadOnly and MariaDBReadOnly are sessions with read-only transactions.
var (
	MySQLReadOnly   = []Setting{Params("transaction_read_only", "transaction_read_only", "1")}
	MariaDBReadOnly = []Setting{Params("tx_read_only", "tx_read_only", "1")}
)

// SQLiteSettings are what applications set in SQLite, over modernc.org/sqlite.
var SQLiteSettings = []Setting{
	Params("no busy timeout", "_pragma", "busy_timeout(0)"),
	apart(Params("a rollback journal", "_pragma", "journal_mode(DELETE)")),
	Params("a sync with every commit", "_pragma", "synchronous(FULL)"),
	Params("no syncs and foreign keys", "_pragma", "synchronous(OFF)", "_pragma", "foreign_keys(1)"),
	Params("exclusive transactions", "_txlock", "exclusive"),
	apart(Params("a shared cache", "cache", "shared", "_pragma", "read_uncommitted(1)")),
	Params("times as text", "_time_format", "sqlite", "_inttotime", "true"),
	Params("rows in another order", "_pragma", "reverse_unordered_selects(1)", "_pragma", "automatic_index(0)",
		"_pragma", "temp_store(2)"),
	Params("recursive triggers", "_pragma", "recursive_triggers(1)", "_pragma", "ignore_check_constraints(1)",
		"_pragma", "cell_size_check(1)",
		"_pragma", "case_sensitive_like(1)"),
}

// SQLiteUsual is how SQLite's own documentation sets up a WAL database.
var SQLiteUsual = Params("WAL", "_pragma", "journal_mode(WAL)", "_pragma", "synchronous(NORMAL)")

// SQLiteReadOnly is how SQLite is read-only.
var SQLiteReadOnly = []Setting{Params("mode=ro", "mode", "ro"), Params("query_only", "_pragma", "query_only(1)")}
