package main

import (
	"database/sql"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/program"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// primary is a PostgreSQL of a test's own.
type primary struct {
	*testing.T
	dsn string
}

func newPrimary(t *testing.T, settings ...string) primary {
	t.Helper()
	return primary{t, dbtest.Own(t, dbtest.KindPostgres, flags(settings)...).DSN}
}

func flags(settings []string) (args []string) {
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// standby follows the primary, from binaries of this machine.
func (p primary) standby(settings ...string) (dsn string) {
	p.Helper()
	in, bin, err := dbtest.Installed(dbtest.KindPostgres)
	if err != nil {
		p.Skip(err) // the primary is in Docker
	}
	as, err := program.Unprivileged("postgres", "nobody")
	require.NoError(p, err)
	dir, err := os.MkdirTemp("", "dblock-standby-") // not the test's folder, which other users may not enter
	require.NoError(p, err)
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(p, as.Own(dir))
	out, err := as.Command(p.Context(), dir, []string{filepath.Join(bin, "pg_basebackup"), "-d", p.dsn, "-D",
		filepath.Join(dir, "data"), "-R", "-c", "fast", "--no-sync"}).CombinedOutput()
	require.NoError(p, err, string(out))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(p, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(p, l.Close())
	server := in.Program(as, dir, port, flags(settings)...)
	require.NoError(p, server.Start())
	p.Cleanup(func() { assert.NoError(p, server.Kill()) })
	return in.DSN(port)
}

// pool waits until a PostgreSQL answers, and returns a pool of it.
func (p primary) pool(dsn string) *sql.DB {
	p.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(p, err)
	p.Cleanup(func() { _ = db.Close() })
	(&world{T: p.T}).until(func() bool { return db.Ping() == nil })
	return db
}

func (p primary) exec(db *sql.DB, statements ...string) {
	p.Helper()
	(&world{T: p.T, db: db}).exec(statements...)
}
