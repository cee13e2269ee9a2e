package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func (w *world) path() string { return strings.TrimPrefix(w.dsn, "sqlite://") }

func TestDoctorSeesThatAFileIsNotInWALMode(t *testing.T) {
	w := onSQLite(t)
	d := w.doctor()
	d.hasOnly(isOK, "journal")
	d.hasOnly(isUnknown, "settings", "synchronous", "busy_timeout")
	w.exec("PRAGMA journal_mode = DELETE")
	d = w.doctor()
	d.hasOnly(isNote, "journal", "not in WAL mode", "journal_mode = WAL")
}

func TestDoctorSeesThatAWriterDoesNotEnd(t *testing.T) {
	w := onSQLite(t)
	conn, err := w.db.Conn(w.Context())
	require.NoError(w, err)
	defer conn.Close()
	require.NoError(w, require.ErrOf(conn.ExecContext(w.Context(), "BEGIN IMMEDIATE")))
	w.limits, w.write = usual, 10*time.Millisecond
	w.doctor().hasOnly(isNote, "writer", "kept the write lock of the file for 10ms")
	w.limits = usual
	require.NoError(w, require.ErrOf(conn.ExecContext(w.Context(), "ROLLBACK")))
	w.doctor().hasOnly(isOK, "writer")
}

func TestDoctorSeesThatAReaderHoldsTheLogBack(t *testing.T) {
	w := onSQLite(t)
	w.exec("CREATE TABLE much (what blob)")
	reader, err := w.db.Begin()
	require.NoError(w, err)
	defer reader.Rollback()
	var n int
	require.NoError(w, reader.QueryRow("SELECT count(*) FROM much").Scan(&n))
	w.doctor().hasOnly(isOK, "transactions", "kB")
	for range 5 {
		w.exec("INSERT INTO much VALUES (zeroblob(4000000))")
	}
	w.doctor().hasOnly(isNote, "transactions", "MB", "a transaction that reads for long")
}

func TestDoctorSeesAFileThatIsNoDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "letter.db")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("Dear Sir or Madam, ", 100)), 0o600))
	d := diagnose(t, shell{}, "--dsn", "sqlite://"+file)
	d.hasOnly(isProblem, "connection", "not a database")
	assert.Equal(t, d.status, exitFailed, "status")
}

func TestDoctorTellsALinkFromItsFile(t *testing.T) {
	w := onSQLite(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(w.path(), link); err != nil {
		t.Skip(err)
	}
	folder, err := folderOf(link)
	if want, _ := filepath.EvalSymlinks(filepath.Dir(w.path())); err != nil || folder != want {
		t.Errorf("%s, %v: want %s", folder, err, want)
	}
	diagnose(t, shell{}, "--dsn", "sqlite://"+link).hasOnly(isOK, "schema")
}

// The log of a file that is named by a link is beside the file.
func TestDoctorFindsTheLogBehindALink(t *testing.T) {
	w := onSQLite(t)
	link := filepath.Join(w.TempDir(), "link.db")
	if err := os.Symlink(w.path(), link); err != nil {
		w.Skip(err)
	}
	diagnose(w.T, shell{}, "--dsn", "sqlite://"+link).hasOnly(isOK, "transactions", "the log (-wal) has")
}
