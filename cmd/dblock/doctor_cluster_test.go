package main

import (
	"crypto/rand"
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
		d.hasOnly(isOK, "session")
		d.hasOnly(isNote, "listening", "clients poll", "a Galera cluster has no named locks")
		d.hasOnly(isOK, "TTL", "0 clients", "evs.suspect_timeout, ")

		rejoin := "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'"
		w.Cleanup(func() {
			assert.NoError(w, assert.ErrOf(w.db.Exec(rejoin)))
			w.until(func() bool { return w.status("wsrep_ready") == "ON" })
		})
		w.exec("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
		w.until(func() bool { return w.status("wsrep_cluster_status") != "Primary" })
		d = w.doctor()
		d.hasOnly(isProblem, "schema", "cannot be read")
		assert.Equal(w, d.status, exitFailed, "status")
	})
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
		d.hasOnly(isOK, "session")
		d.hasOnly(isNote, "TTL", "or less: 1", "group_replication_member_expel_timeout, 5s in all")
		assert.NoError(w, c.Close(w.Context()))

		// Before its database goes, the node is a primary again.
		w.Cleanup(func() { w.role("SELECT group_replication_switch_to_multi_primary_mode()", "PRIMARY") })
		w.role("SELECT group_replication_switch_to_single_primary_mode(@@server_uuid)", "PRIMARY")
		var other string
		require.NoError(w, w.db.QueryRow("SELECT MEMBER_ID FROM performance_schema.replication_group_members WHERE "+
			"MEMBER_ID <> @@server_uuid LIMIT 1").Scan(&other))
		w.role("SELECT group_replication_set_as_primary('"+other+"')", "SECONDARY")
		d = w.doctor()
		d.hasOnly(isProblem, "session", "the database is read-only", "primary")
		d.hasOnly(isOK, "schema")
	})
}

// role runs a statement, and waits until the member is online with a role.
func (w *world) role(statement, want string) {
	w.Helper()
	var said string
	assert.NoError(w, w.db.QueryRow(statement).Scan(&said), statement)
	w.until(func() bool {
		var state, role string
		err := w.db.QueryRow("SELECT MEMBER_STATE, MEMBER_ROLE FROM performance_schema.replication_group_members "+
			"WHERE MEMBER_ID = @@server_uuid").Scan(&state, &role)
		return err == nil && state == "ONLINE" && role == want
	})
}
