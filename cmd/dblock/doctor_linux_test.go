package main

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

func TestDoctorSeesAPooler(t *testing.T) {
	onPostgres(t, func(w *world) {
		through := func(mode string) diagnosis { return w.at(w.own.PgBouncer(w, mode).DSN).doctor() }
		d := through("transaction")
		d.hasOnly(isOK, "session")
		d.hasOnly(isNote, "listening", "clients poll", "a pooler is in between", "postgres.Listen(dsn)",
			"pool_mode = session")
		through("session").hasOnly(isOK, "listening")
		through("statement").hasOnly(isProblem, "session", "cannot begin", "let it pool sessions or transactions")
	})
}

func TestDoctorSeesAStandbyAndTTLsShorterThanItsPromotion(t *testing.T) {
	t.Parallel()
	p := newPrimary(t, "max_connections=20")
	db := p.pool(p.dsn)
	require.NoError(t, migrate.Up(t.Context(), db, migrate.Postgres))
	standby := p.standby("max_connections=20")
	p.pool(standby)
	follower := &world{T: t, dsn: standby}
	d := follower.doctor()
	d.hasOnly(isProblem, "session", "the database is read-only", "target_session_attrs=read-write")
	d.hasOnly(isOK, "schema")
	d.hasOnly(isOK, "privileges")

	primary := &world{T: t, dsn: p.dsn}
	primary.until(func() bool {
		var n int
		return db.QueryRow("SELECT count(*) FROM pg_stat_replication").Scan(&n) == nil && n == 1
	})
	primary.doctor().hasOnly(isOK, "TTL", "0 clients", "Patroni")
	p.exec(db, "INSERT INTO dblock_sessions (id, host, pid, app, started_at) VALUES ('short', 'here', 7, 'orders', 1)",
		"INSERT INTO dblock_heartbeats (session_id, expires_at) SELECT 'short', (extract(epoch FROM "+
			"clock_timestamp()) * 1000000)::bigint + 15000000")
	primary.doctor().hasOnly(isNote, "TTL", "or less: 1", "Patroni", "WithTTL")
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
	w.doctor().hasOnly(isOK, "session")
	if os.Geteuid() == 0 {
		err = syscall.Mount("", folder, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	} else {
		err = errors.Join(os.Chmod(file, 0o400), os.Chmod(folder, 0o500))
		t.Cleanup(func() { _ = os.Chmod(folder, 0o700) })
	}
	require.NoError(t, err)
	d := w.doctor()
	d.hasOnly(isProblem, "session", "the database is read-only", "its folder writable")
	d.hasOnly(isOK, "schema")
}
