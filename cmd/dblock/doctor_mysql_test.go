package main

import (
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// onMySQL runs a test on a database of MySQL, and on one of MariaDB.
func onMySQL(t *testing.T, test func(w *world)) {
	t.Helper()
	eachKind(t, test, "mysql", "mariadb")
}

func (w *world) isMariaDB() bool { return strings.HasSuffix(w.Name(), "mariadb") }

// with is doctor for a data source with a variable that each session sets.
func (w *world) with(name, value string) diagnosis {
	w.Helper()
	return w.at(w.dsn + "?" + url.Values{name: {value}}.Encode()).doctor()
}

// either is the name that MySQL has for a variable, or that of MariaDB.
func (w *world) either(mysql, mariadb string) string {
	if w.isMariaDB() {
		return mariadb
	}
	return mysql
}

// variable is one of the server's.
func (w *world) variable(name string) (value string) {
	w.Helper()
	require.NoError(w, w.db.QueryRow("SHOW GLOBAL VARIABLES WHERE Variable_name = '"+name+"'").Scan(&name, &value))
	return value
}

func TestDoctorSeesThatSessionsOfMySQLAreReadOnly(t *testing.T) {
	onMySQL(t, func(w *world) {
		w.with(w.either("transaction_read_only", "tx_read_only"), "1").hasOnly(isProblem, "primary",
			"transaction_read_only", "ErrReadOnly")
	})
}

func TestDoctorSeesTimeoutsOfMySQL(t *testing.T) {
	onMySQL(t, func(w *world) {
		w.with("innodb_lock_wait_timeout", "15").hasOnly(isNote, "time-outs",
			"innodb_lock_wait_timeout is 15s (of the session)", "LockTx")
		w.with("innodb_lock_wait_timeout", "16").hasOnly(isOK, "time-outs")
		w.with(w.either("max_execution_time", "max_statement_time"), w.either("900", "0.9")).hasOnly(isProblem,
			"time-outs", "is 900ms (of the session)")
		w.with(w.either("max_execution_time", "max_statement_time"), w.either("1000", "1")).hasOnly(isNote, "time-outs",
			"is 1s (of the session)", "LockTx")
		w.with(w.either("max_execution_time", "max_statement_time"), w.either("15000", "15")).hasOnly(isNote,
			"time-outs", "is 15s", "LockTx")
		w.with(w.either("max_execution_time", "max_statement_time"), w.either("16000", "16")).hasOnly(isOK, "time-outs")
		if !w.isMariaDB() {
			return
		}
		for _, of := range []string{"", "readonly_", "write_"} {
			name := "idle_" + of + "transaction_timeout"
			w.with(name, "1").hasOnly(isNote, "time-outs", name+" is 1s (of the session)", "pauses")
			w.with(name, "5").hasOnly(isOK, "time-outs")
		}
	})
}

func TestDoctorSeesThatClientsWouldRefuseThePool(t *testing.T) {
	onMySQL(t, func(w *world) {
		w.with("autocommit", "0").hasOnly(isProblem, "settings", "autocommit off")
		w.with("sql_select_limit", "1000").hasOnly(isProblem, "settings", "sql_select_limit is 1000")
		if !isOn(w.variable("log_bin")) {
			return
		}
		w.with("binlog_format", "'STATEMENT'").hasOnly(isProblem, "settings", "binlog_format is STATEMENT")
	})
}

// The servers of tests are durable or not: doctor says which.
func TestDoctorSeesWhetherMySQLWaitsForTheDisk(t *testing.T) {
	onMySQL(t, func(w *world) {
		d := w.doctor()
		lax := 0
		if flush := w.variable("innodb_flush_log_at_trx_commit"); flush == "0" || flush == "2" {
			d.has(isProblem, "durability", "innodb_flush_log_at_trx_commit is "+flush)
			lax++
		}
		if sync := w.variable("sync_binlog"); isOn(w.variable("log_bin")) && sync != "1" {
			d.has(isNote, "durability", "sync_binlog is "+sync)
			lax++
		}
		if n := strings.Count(d.text("durability"), "\n"); lax > 0 && n != lax {
			w.Errorf("%d findings, want %d:\n%s", n, lax, d.text("durability"))
		}
		if lax == 0 {
			d.hasOnly(isOK, "durability")
		}
	})
	for _, c := range []struct {
		flush, log, sync, doublewrite string
		want                          level
	}{
		{"1", "ON", "1", "ON", isOK},
		{"3", "OFF", "0", "ON", isOK},
		{"0", "ON", "1", "ON", isProblem},
		{"2", "ON", "1", "ON", isProblem},
		{"1", "ON", "0", "ON", isNote},
		{"1", "ON", "1000", "ON", isNote},
		{"1", "OFF", "0", "OFF", isNote},
	} {
		made := durable(map[string]string{"innodb_flush_log_at_trx_commit": c.flush, "log_bin": c.log,
			"sync_binlog": c.sync, "innodb_doublewrite": c.doublewrite})
		if len(made) != 1 || made[0].Level != c.want {
			t.Errorf("%+v: %+v", c, made)
		}
	}
}

func TestDoctorTellsHowManyStatementsCanStillBePrepared(t *testing.T) {
	for _, c := range []struct {
		use, most int
		want      level
	}{
		{100, 16382, isOK},
		{13105, 16382, isOK},
		{13106, 16382, isNote},
		{100, 265, isOK},
		{101, 265, isNote},
		{0, 0, isNote},
	} {
		if made := preparedStatements(c.use, c.most); made.Level != c.want {
			t.Errorf("%+v: %+v", c, made)
		}
	}
	onMySQL(t, func(w *world) { w.doctor().has(isOK, "statements", "prepared statements that the server allows") })
}

func TestDoctorSeesTheConnectionsOfAUserOfMySQL(t *testing.T) {
	onMySQL(t, func(w *world) {
		user, dsn := w.as("WITH MAX_USER_CONNECTIONS 8")
		w.grant(user, "mysql-app.sql")
		u, err := url.Parse(dsn)
		require.NoError(w, err)
		pool, err := sql.Open("mysql", user+":x@tcp("+u.Host+")/"+w.name())
		require.NoError(w, err)
		defer pool.Close()
		w.counts(dsn, "ok: 0 of the 8 connections of user "+user)
		require.Equal(w, occupy(w.T, pool, 5), 5, "connections")
		w.counts(dsn, "problem: 5 of the 8 connections of user "+user+" are in use: a client needs up to "+w.either("4",
			"5"))
	})
}

func TestDoctorSaysNothingOfAUserThatItCannotCount(t *testing.T) {
	onMySQL(t, func(w *world) {
		u, err := url.Parse(w.dsn)
		require.NoError(w, err)
		u.Host = between(w.T, u.Host, "information_schema.processlist", "information_schema.processlisX")
		d := w.at(u.String()).doctor()
		d.has(isUnknown, "connections", "could not be looked at")
		if s := d.text("connections"); strings.Contains(s, "connections of  are") {
			w.Error(s)
		}
	})
}

func TestDoctorSeesLongTransactionsOfMySQL(t *testing.T) {
	onMySQL(t, func(w *world) {
		w.lock("n")
		tx, err := w.db.Begin()
		require.NoError(w, err)
		defer tx.Rollback()
		var id, n int
		require.NoError(w, tx.QueryRow("SELECT CONNECTION_ID(), (SELECT COUNT(*) FROM dblock_locks)").Scan(&id, &n))
		w.until(func() bool { // the server's times are whole seconds, and others have transactions, too
			time.Sleep(150 * time.Millisecond) // innodb_trx is made anew once nobody has looked for 100 ms
			d := w.doctor("--older", "1ms")
			return strings.Contains(d.text("transactions"),
				"note: transactions that have been open for longer than 1ms") &&
				strings.Contains(d.text("transactions"), "Purge")
		})
		for _, zone := range []string{"", "?" + url.Values{"time_zone": {"'+05:00'"}}.Encode()} {
			w.at(w.dsn+zone).doctor("--older", "4h").hasOnly(isOK, "transactions", "4h0m0s")
		}
		user, dsn := w.as("")
		w.grant(user, "mysql-app.sql")
		w.at(dsn).doctor("--older", "1ms").hasOnly(isUnknown, "transactions", "PROCESS")
	})
}

func TestDoctorSeesWhichRightsAreMissingOnMySQL(t *testing.T) {
	onMySQL(t, func(w *world) {
		user, dsn := w.as("")
		w.grant(user, "mysql-app.sql")
		doctor := func() diagnosis { return w.at(dsn).doctor() }
		doctor().hasOnly(isOK, "privileges", user)
		for _, right := range []string{"SELECT", "INSERT", "DELETE"} {
			w.exec("REVOKE " + right + " ON dblock_waiters FROM " + user + "@'%'")
			doctor().hasOnly(isProblem, "privileges", user+"@% lacks "+right+" on dblock_waiters;", "mysql-app.sql")
			w.exec("GRANT " + right + " ON dblock_waiters TO " + user + "@'%'")
		}
		w.exec("REVOKE UPDATE ON dblock_incarnation FROM " + user + "@'%'")
		d := doctor()
		d.hasOnly(isNote, "privileges", "lacks UPDATE on dblock_incarnation", "package quorum")
		d.hasOnly(isUnknown, "sessions", "denied", "dblock_migrations")
	})
}

// timestamp makes NOW() another in a session.
func TestDoctorSeesThatClocksOfMySQLDiffer(t *testing.T) {
	onMySQL(t, func(w *world) {
		at := func(ahead time.Duration) string { return fmt.Sprint(time.Now().Add(ahead).Unix()) }
		w.with("timestamp", at(time.Hour)).hasOnly(isProblem, "clock", "behind the server's", "come late", "NTP")
		w.with("timestamp", at(-time.Hour)).hasOnly(isProblem, "clock", "ahead of the server's", "refuse", "NTP")
		w.with("timestamp", at(55*time.Second)).hasOnly(isNote, "clock", "behind the server's", "NTP")
	})
}

func TestDoctorSeesThatKillDoesNotArrive(t *testing.T) {
	onMySQL(t, func(w *world) {
		u, err := url.Parse(w.dsn)
		require.NoError(w, err)
		u.Host = between(w.T, u.Host, "KILL QUERY IS_USED_LOCK(", "DO         IS_USED_LOCK(")
		w.limits, w.echo = usual, time.Second
		d := w.at(u.String()).doctor()
		d.hasOnly(isNote, "KILL", "does not reach", "instead of listening")
	})
}
