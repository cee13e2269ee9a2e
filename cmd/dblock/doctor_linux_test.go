package main

import (
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

func (w *world) url() *url.URL {
	w.Helper()
	u, err := url.Parse(w.dsn)
	require.NoError(w, err)
	return u
}

func TestDoctorSeesAPooler(t *testing.T) {
	onPostgres(t, func(w *world) {
		through := func(mode string) diagnosis { return w.at(w.pgBouncer(mode)).doctor() }
		d := through("transaction")
		d.hasOnly(isNote, "pooler", "by the transaction", "clients poll", "postgres.Listen", "pool_mode = session")
		d.hasOnly(isNote, "LISTEN", "see pooler")
		d.hasOnly(isOK, "schema")
		var listening int
		if err := w.db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query " +
			"LIKE '%LISTEN%' AND pid <> pg_backend_pid()").Scan(&listening); err != nil || listening > 0 {
			w.Errorf("%d sessions of the pooler's were made to listen, %v", listening, err)
		}

		d = through("session")
		d.hasOnly(isOK, "pooler", "for the session")
		d.hasOnly(isOK, "LISTEN")

		d = through("statement")
		d.hasOnly(isProblem, "pooler", "no transaction of several statements", "transaction blocks not allowed")
		d.hasOnly(isNote, "LISTEN", "see pooler")
	})
}

// With a single server connection one of doctor's two waits for the other.
func TestDoctorDoesNotTakeABusyPoolerForOneOfStatements(t *testing.T) {
	onPostgres(t, func(w *world) {
		through := func(mode string) diagnosis { return w.at(w.pgBouncer(mode, "default_pool_size = 1")).doctor() }
		w.limits = limits{check: patience, lend: patience, echo: patience}
		d := through("transaction")
		d.hasOnly(isNote, "pooler", "by the transaction")

		w.lend = 100 * time.Millisecond // for what cannot be lent
		d = through("session")
		d.hasOnly(isUnknown, "pooler", "not served at a time within 100ms")
		d.hasOnly(isUnknown, "LISTEN", "see pooler")
	})
}

// pool waits until a PostgreSQL answers, and returns a pool of it.
func (p primary) pool(dsn string) *sql.DB {
	p.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(p, err)
	p.Cleanup(func() { _ = db.Close() })
	w := &world{T: p.T}
	w.until(func() bool { return db.Ping() == nil })
	return db
}

func (p primary) exec(db *sql.DB, statements ...string) {
	p.Helper()
	for _, s := range statements {
		require.NoError(p, require.ErrOf(db.Exec(s)), s)
	}
}

func TestDoctorSeesAStandbyAndHowAPrimaryIsReplicated(t *testing.T) {
	t.Parallel()
	p := newPrimary(t, "max_prepared_transactions=2", "max_connections=20")
	db := p.pool(p.dsn(p.port))
	require.NoError(t, migrate.Up(t.Context(), db, migrate.Postgres))
	standby := p.standby("max_prepared_transactions=2", "max_connections=20")
	p.pool(standby)
	w := &world{T: t}
	doctor := func(dsn string, arguments ...string) diagnosis { return (&world{T: t, dsn: dsn}).doctor(arguments...) }
	primary := p.dsn(p.port)
	shows := func(query, want string) { // settings reach a server a moment after pg_reload_conf
		t.Helper()
		w.until(func() bool {
			var got string
			return db.QueryRow(query).Scan(&got) == nil && got == want
		})
	}

	d := doctor(standby)
	d.hasOnly(isProblem, "primary", "a standby", "ErrReadOnly", "target_session_attrs=read-write")
	d.hasOnly(isOK, "schema")
	d.hasOnly(isOK, "privileges")
	d.hasOnly(isOK, "pooler")
	d.hasOnly(isUnknown, "LISTEN", "standby")
	d.hasOnly(isOK, "clock")
	d.hasOnly(isOK, "replication", "a standby")

	shows("SELECT count(*) FROM pg_stat_replication", "1")
	d = doctor(primary)
	d.hasOnly(isOK, "durability", "synchronous_commit is on")
	d.hasOnly(isNote, "replication", "asynchronously", "check tokens")
	d.hasOnly(isOK, "TTL", "0 clients")

	p.exec(db, "INSERT INTO dblock_sessions (id, host, pid, app, started_at) VALUES ('short', 'here', 7, 'orders', 1)",
		"INSERT INTO dblock_heartbeats (session_id, expires_at) SELECT 'short', (extract(epoch FROM "+
			"clock_timestamp()) * 1000000)::bigint + 15000000")
	doctor(primary).hasOnly(isNote, "TTL", "or less: 1", "Patroni", "WithTTL")

	p.exec(db, "ALTER SYSTEM SET synchronous_standby_names = 'gone'", "SELECT pg_reload_conf()")
	shows("SHOW synchronous_standby_names", "gone")
	doctor(primary).hasOnly(isProblem, "replication", "commits wait for gone, and 0 of the 1 standbys", "commits hang")

	p.exec(db, "ALTER SYSTEM SET synchronous_standby_names = '*'", "ALTER SYSTEM SET fsync = off",
		"ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()")
	shows("SHOW fsync", "off")
	shows("SELECT sync_state FROM pg_stat_replication", "sync")
	d = doctor(primary)
	d.hasOnly(isNote, "replication", "commits wait for *, and no other standby follows", "synchronous_mode_strict")
	d.has(isProblem, "durability", "fsync is off")
	d.has(isNote, "durability", "full_page_writes is off")
	p.exec(db, "ALTER ROLE postgres SET synchronous_commit = local")
	doctor(primary).hasOnly(isNote, "replication", "synchronous_commit is local")

	tx, err := db.Begin()
	require.NoError(t, err)
	for _, s := range []string{"LOCK TABLE dblock_runs IN ROW EXCLUSIVE MODE", "PREPARE TRANSACTION 'left behind'"} {
		require.NoError(t, require.ErrOf(tx.Exec(s)))
	}
	_ = tx.Rollback()
	doctor(primary, "--older", "1ms").hasOnly(isNote, "transactions", "prepared as 'left behind'", "ROLLBACK PREPARED")
	p.exec(db, "ROLLBACK PREPARED 'left behind'")

	p.exec(p.pool(standby), "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_promote()")
	doctor(standby).hasOnly(isNote, "replication", "no standby follows, although this server was promoted",
		"timeline 2")
}

func TestDoctorSeesThatAServerHasNoConnectionsLeft(t *testing.T) {
	t.Parallel()
	p := newPrimary(t, "max_connections=20", "max_wal_senders=0")
	db := p.pool(p.dsn(p.port))
	w := &world{T: t, dsn: p.dsn(p.port)}
	w.counts(p.dsn(p.port), "ok: 1 of the 17 connections of the server")
	occupy(t, db, 14)
	w.doctor().has(isProblem, "connections", "of the 17 connections of the server", "a client needs up to 4")
	w.until(func() bool { // a session goes a moment after its client
		var n int
		return db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", app).Scan(&n) == nil &&
			n == 0
	})
	if n := occupy(t, db, 20); n == 20 {
		t.Error("the server has no limit")
	}
	w.doctor().hasOnly(isProblem, "connection", "too many clients")
}

func TestDoctorKnowsFileSystemsOfANetwork(t *testing.T) {
	for magic, want := range map[uint32]level{ // as statfs(2) lists them
		0x6969: isProblem, 0xff534d42: isProblem, 0xfe534d42: isProblem, 0x517b: isProblem, 0x01021997: isProblem,
		0x00c36400: isProblem, 0x0bd00bd0: isProblem,
		0x65735546: isUnknown,
		// ext4, tmpfs, XFS, Btrfs, overlayfs
		0xef53: isOK, 0x01021994: isOK, 0x58465342: isOK, 0x9123683e: isOK, 0x794c7630: isOK,
	} {
		if f := fileSystemBy(magic).judge(); f.Level != want {
			t.Errorf("%#x: %+v", magic, f)
		}
	}
	is, err := fileSystemOf(t.TempDir())
	if err != nil || is.level != isOK {
		t.Errorf("%+v, %v", is, err)
	}
	assert.ErrorIs(t, assert.ErrOf(fileSystemOf(filepath.Join(t.TempDir(), "missing"))), os.ErrNotExist)
}

// Root may write everything but what is mounted so that nobody can.
func TestDoctorSeesThatAFileCannotBeWritten(t *testing.T) {
	w := onSQLite(t)
	folder := t.TempDir()
	if os.Geteuid() == 0 {
		if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=4m"); err != nil {
			t.Skipf("what root may not write is a file system that is read-only, and to mount one takes "+
				"CAP_SYS_ADMIN: mount: %v", err)
		}
		t.Cleanup(func() { assert.NoError(t, syscall.Unmount(folder, 0)) })
	}
	file := filepath.Join(folder, "app.db")
	db, err := sql.Open("sqlite", "file:"+file)
	require.NoError(t, err)
	err = migrate.Up(t.Context(), db, migrate.SQLite)
	require.NoError(t, errors.Join(err, db.Close()))
	w.dsn = "sqlite://" + file
	w.doctor().hasOnly(isOK, "privileges")
	if os.Geteuid() == 0 {
		err = syscall.Mount("", folder, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	} else {
		err = errors.Join(os.Chmod(file, 0o400), os.Chmod(folder, 0o500))
		t.Cleanup(func() { _ = os.Chmod(folder, 0o700) })
	}
	require.NoError(t, err)
	d := w.doctor()
	d.has(isProblem, "privileges", "may not write "+folder+":")
	d.has(isProblem, "privileges", "may not write "+file+":")
	d.hasOnly(isProblem, "writer", "cannot be written", "readonly")
	d.hasOnly(isOK, "schema")
}
