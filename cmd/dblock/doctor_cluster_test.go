package main

import (
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// onCluster runs a test on a database of a cluster that is there for tests alone, which may take
// its nodes apart. scripts/soak clusters -doctor starts some.
func onCluster(t *testing.T, variable string, test func(w *world)) {
	if os.Getenv(variable) == "" {
		t.Skip(variable + " names no cluster for tests; scripts/soak clusters -doctor starts one")
	}
	config, err := mysql.ParseDSN(os.Getenv(variable))
	require.NoError(t, err)
	server := dbtest.Database{Kind: dbtest.KindMySQL, Engine: migrate.MySQL, DSN: config.FormatDSN()}.SQL(t)
	config.DBName = "dblock_" + strings.ToLower(rand.Text()[:20]) // users are called like it, in 32 letters at most
	require.NoError(t, require.ErrOf(server.Exec("CREATE DATABASE "+config.DBName)))
	t.Cleanup(func() { assert.NoError(t, assert.ErrOf(server.Exec("DROP DATABASE "+config.DBName))) })
	w := newWorld(t, dbtest.Database{Kind: dbtest.KindMySQL, Engine: migrate.MySQL, DSN: config.FormatDSN()})
	require.NoError(t, migrate.Up(t.Context(), w.db, w.engine))
	test(w)
}

func TestDoctorSeesANodeOfGalera(t *testing.T) {
	onCluster(t, "DBLOCK_TEST_GALERA_DSN", func(w *world) {
		d := w.doctor()
		d.hasOnly(isNote, "cluster", "one of 3 nodes of a Galera cluster", "mysql.SingleWriter()", "fence.Check")
		d.has(isNote, "cluster", "wsrep_sync_wait is 0", "ErrNotHeld")
		w.with("wsrep_sync_wait", "1").has(isOK, "cluster", "wsrep_sync_wait is 1", "a read waits")
		d.hasOnly(isNote, "KILL", "instead of listening", "see cluster")
		d.hasOnly(isOK, "schema")
		d.hasOnly(isOK, "TTL", "0 clients", "evs.suspect_timeout, ")

		rejoin := "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'"
		w.Cleanup(func() {
			w.later(rejoin)
			w.until(func() bool { return w.status("wsrep_ready") == "ON" })
		})
		w.exec("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
		w.until(func() bool { return w.status("wsrep_cluster_status") != "Primary" })
		d = w.doctor()
		d.has(isProblem, "cluster", "not ready", "non-Primary", "connect to another")
		d.hasOnly(isProblem, "schema", "cannot be read")
		assert.Equal(w, d.status, exitFailed, "status")
	})
}

func TestDoctorJudgesAMemberOfAGroup(t *testing.T) {
	for _, c := range []struct {
		state, role string
		err         error
		want        level
		says        string
	}{
		{"ONLINE", "PRIMARY", nil, isOK, "single primary: primary, online"},
		{"RECOVERING", "SECONDARY", nil, isProblem, "RECOVERING; bring it back"},
		{"", "", sql.ErrNoRows, isProblem, "OFFLINE; bring it back"}, // it was never started
		{"", "", &mysql.MySQLError{Number: deniedTable}, isUnknown, "GRANT SELECT"},
		{"", "", driver.ErrBadConn, isUnknown, "bad connection; "},
	} {
		made := member{c.state, c.role, true, "BEFORE"}.judge(c.err)
		if len(made) != 1 || made[0].Level != c.want || !strings.Contains(made[0].Found+"; "+made[0].Do, c.says) {
			t.Errorf("%+v: %+v", c, made)
		}
		made = member{c.state, c.role, false, eventual}.judge(c.err)
		if last := made[len(made)-1]; last.Level != isNote || !strings.Contains(last.Found, "several primaries") {
			t.Errorf("with several primaries: %+v", made)
		}
	}
}

func TestDoctorJudgesTheConsistencyOfAGroup(t *testing.T) {
	for _, c := range []struct {
		single      bool
		consistency string
		want        level
		says        string
	}{
		{true, eventual, isNote, "may go by an older holder; set group_replication_consistency = " +
			"BEFORE_ON_PRIMARY_FAILOVER"},
		{true, onFailover, isOK, "a new primary serves once"},
		{true, "BEFORE", isOK, "a transaction waits"},
		{true, "AFTER", isOK, "a commit waits"},
		{true, "BEFORE_AND_AFTER", isOK, "its commit until"},
		{false, eventual, isNote, "may not find its own lock there: Unlock returns ErrNotHeld, and one of the " +
			"next heartbeats releases the lock; live with that"},
		{false, onFailover, isNote, "ErrNotHeld, and one of the next heartbeats releases the lock; live " +
			"with that, or set group_replication_consistency = AFTER"},
		{false, "BEFORE", isOK, "a transaction waits"},
		{false, "AFTER", isOK, "a commit waits"},
		{false, "BEFORE_AND_AFTER", isOK, "its commit until"},
	} {
		made := member{"ONLINE", "PRIMARY", c.single, c.consistency}.waits()
		if len(made) != 1 || made[0].Level != c.want || !strings.HasPrefix(made[0].Found,
			"group_replication_consistency is "+c.consistency+": ") ||
			!strings.Contains(made[0].Found+"; "+made[0].Do, c.says) {
			t.Errorf("%+v: %+v", c, made)
		}
	}
	for _, single := range []bool{true, false} {
		if made := (member{"ONLINE", "PRIMARY", single, ""}).waits(); len(made) > 0 { // before MySQL 8.0.14
			t.Errorf("%+v", made)
		}
	}
}

func TestDoctorJudgesWhatAReadOfGaleraWaitsFor(t *testing.T) {
	for bits, want := range map[int]level{0: isNote, 1: isOK, 2: isNote, 3: isOK, 4: isNote, 15: isOK} {
		f := syncWait(bits)
		if f.Level != want || !strings.HasPrefix(f.Found, fmt.Sprintf("wsrep_sync_wait is %d: ", bits)) ||
			(want == isNote) != strings.Contains(f.Found+"; "+f.Do,
				"ErrNotHeld, and one of the next heartbeats releases the lock; live with that") {
			t.Errorf("%d: %+v", bits, f)
		}
	}
}

// status is a status variable of the server.
func (w *world) status(name string) (value string) {
	w.Helper()
	if err := w.db.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &value); err != nil {
		w.Log(err)
	}
	return value
}

func TestDoctorSeesANodeOfAGroup(t *testing.T) {
	onCluster(t, "DBLOCK_TEST_GROUP_DSN", func(w *world) {
		c := w.newClient(dblock.WithTTL(2 * time.Second))
		require.NoError(w, require.ErrOf(c.Lock(w.Context(), "held")))
		d := w.doctor()
		d.hasOnly(isNote, "cluster", "one of several primaries of a group", "mysql.SingleWriter()", "fence.Check")
		d.has(isNote, "cluster", "BEFORE_ON_PRIMARY_FAILOVER", "ErrNotHeld", "= AFTER")
		w.with("group_replication_consistency", "'AFTER'").has(isOK, "cluster", "is AFTER: a commit waits")
		d.hasOnly(isNote, "TTL", "or less: 1", "group_replication_member_expel_timeout, 5s in all")
		assert.NoError(w, c.Close(w.Context()))
		user, dsn := w.as("")
		w.grant(user, "mysql-app.sql")
		d = w.at(dsn).doctor()
		d.has(isUnknown, "cluster", "performance_schema.replication_group_members")
		d.has(isNote, "cluster", "one of several primaries")

		// Before its database goes, the node is a primary again.
		w.Cleanup(func() { w.role("SELECT group_replication_switch_to_multi_primary_mode()", "PRIMARY") })
		w.role("SELECT group_replication_switch_to_single_primary_mode(@@server_uuid)", "PRIMARY")
		d = w.doctor()
		d.hasOnly(isOK, "cluster", "single primary: primary, online")
		d.hasOnly(isOK, "cluster", "BEFORE_ON_PRIMARY_FAILOVER", "a new primary serves once")
		usual := "SET GLOBAL group_replication_consistency = DEFAULT"
		w.Cleanup(func() { w.later(usual) })
		w.exec("SET GLOBAL group_replication_consistency = EVENTUAL")
		d = w.doctor()
		d.has(isOK, "cluster", "single primary: primary, online")
		d.has(isNote, "cluster", "is EVENTUAL", "BEFORE_ON_PRIMARY_FAILOVER")
		w.exec(usual)
		var other string
		require.NoError(w, w.db.QueryRow("SELECT MEMBER_ID FROM performance_schema.replication_group_members WHERE "+
			"MEMBER_ID <> @@server_uuid LIMIT 1").Scan(&other))
		w.role("SELECT group_replication_set_as_primary('"+other+"')", "SECONDARY")
		d = w.doctor()
		d.hasOnly(isOK, "cluster", "single primary: secondary, online")
		d.hasOnly(isProblem, "primary", "read-only", "ErrReadOnly")
		d.hasOnly(isOK, "schema")

		w.Cleanup(func() { w.role("START GROUP_REPLICATION", "SECONDARY") })
		w.exec("STOP GROUP_REPLICATION")
		d = w.doctor()
		d.has(isProblem, "cluster", "OFFLINE", "connect to another")
		d.hasOnly(isProblem, "primary", "read-only")
	})
}

// role runs a statement, and waits until the member is online with a role.
func (w *world) role(statement, want string) {
	w.Helper()
	if strings.HasPrefix(statement, "SELECT") {
		var said string
		assert.NoError(w, w.db.QueryRow(statement).Scan(&said), statement)
	} else {
		w.later(statement)
	}
	w.until(func() bool {
		var state, role string
		err := w.db.QueryRow("SELECT MEMBER_STATE, MEMBER_ROLE FROM performance_schema.replication_group_members "+
			"WHERE MEMBER_ID = @@server_uuid").Scan(&state, &role)
		return err == nil && state == "ONLINE" && role == want
	})
}
