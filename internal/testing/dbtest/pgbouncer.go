package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/program"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The modes in which a PgBouncer lends server connections.
const (
	PoolTransactions = "transaction"
	PoolSessions     = "session"
	PoolStatements   = "statement"
)

// PgBouncer returns a PostgreSQL database as seen through a PgBouncer of the test's own, with its
// default settings but for the mode and for lines of its ini. The binary is DBLOCK_TEST_PGBOUNCER,
// or in PATH or /usr/sbin. Without it the test is skipped, or fails where DBLOCK_TEST_REQUIRE names
// pgbouncer. Before 1.21 it knows nothing of prepared statements, so the DSN asks pgx to do
// without.
func (d Database) PgBouncer(t testing.TB, mode string, settings ...string) Database {
	t.Helper()
	binary, err := pgbouncer()
	if err != nil {
		if slices.Contains(list("DBLOCK_TEST_REQUIRE"), "pgbouncer") {
			t.Fatal(err)
		}
		noPgBouncer.Do(func() { tell(fmt.Sprintf("dblock: left out PgBouncer: %v\n", err)) })
		t.Skip(err)
	}
	server, err := pgx.ParseConfig(d.DSN)
	require.NoError(t, err)
	as, err := program.Unprivileged("postgres", "nobody")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "dblock-pgbouncer-") // not the test's folder, which other users may not enter
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, err := freePort()
	require.NoError(t, err)
	ini := fmt.Sprintf("[databases]\n* = host=%s port=%d user=%s%s\n[pgbouncer]\nlisten_addr = "+
		"127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = %s\nignore_startup_parameters = extra_float_digits\n",
		server.Host, server.Port, server.User, password(server.Password), port, mode) + strings.Join(settings, "\n") +
		"\n"
	file := filepath.Join(dir, "ini")
	require.NoError(t, errors.Join(os.WriteFile(file, []byte(ini), 0o600), as.Own(dir)))
	p := &program.Program{As: as, Dir: dir, Args: []string{binary, "-q", file}}
	require.NoError(t, p.Start())
	t.Cleanup(func() { assert.NoError(t, p.Kill(), "dbtest: stop PgBouncer") })
	u, err := postgresURL(d.DSN)
	require.NoError(t, err)
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	through := u.Query()
	through.Set("sslmode", "disable")
	through.Set("default_query_exec_mode", "exec")
	u.RawQuery = through.Encode()
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
	defer cancel()
	if err := ready(ctx, d.Kind, u.String(), p.Ended()); err != nil {
		out, _ := os.ReadFile(p.Log())
		t.Fatalf("dbtest: PgBouncer: %v\n%s", err, tail(out))
	}
	d.DSN = u.String()
	return d
}

var noPgBouncer sync.Once

func pgbouncer() (string, error) {
	if path := os.Getenv("DBLOCK_TEST_PGBOUNCER"); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	if path := "/usr/sbin/pgbouncer"; executable(path) {
		return path, nil
	}
	return "", errors.New("pgbouncer is neither in PATH nor in /usr/sbin; scripts/test installs it")
}

func password(p string) string {
	if p == "" {
		return ""
	}
	return " password='" + strings.ReplaceAll(p, "'", "''") + "'"
}
