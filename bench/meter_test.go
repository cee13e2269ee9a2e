package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// tick is the unit of CPU times in /proc: USER_HZ of Linux.
const tick = 10 * time.Millisecond

// usage is what a server has used since it started. All of these only grow.
type usage struct {
	at  time.Time
	cpu time.Duration // of all its processes; on SQLite of this process, which is server and clients
	log float64       // bytes of WAL; of redo and binary log; on SQLite all bytes that this process has written
}

// meter reads the usage of one server, which must have no other work.
type meter struct {
	*app
	pid int // of the server; 0: not known, as of a server on another machine
}

func newMeter(b testing.TB, a *app) meter {
	b.Helper()
	pid, err := a.serverPID(b.Context())
	require.NoError(b, err)
	return meter{a, pid}
}

func (m meter) read(b testing.TB) usage {
	b.Helper()
	u := usage{at: time.Now()}
	for _, pid := range m.processes() {
		u.cpu += cpuOf(pid)
	}
	var err error
	u.log, err = m.logged(b.Context())
	require.NoError(b, err)
	return u
}

// during returns what the server uses per second while f runs: seconds of CPU, and bytes of log.
// It also returns for how many seconds f ran.
func (m meter) during(b testing.TB, f func()) (cpu, log, seconds float64) {
	b.Helper()
	before := m.read(b)
	f()
	after := m.read(b)
	seconds = after.at.Sub(before.at).Seconds()
	return (after.cpu - before.cpu).Seconds() / seconds, (after.log - before.log) / seconds, seconds
}

// knowsCPU reports whether the server's processes are on this machine.
func (m meter) knowsCPU() bool { return m.pid != 0 }

// memory is the private memory of the server's processes, in bytes.
func (m meter) memory() (bytes int) {
	for _, pid := range m.processes() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		var size, resident, shared int
		_, _ = fmt.Sscan(string(text), &size, &resident, &shared)
		bytes += (resident - shared) * os.Getpagesize()
	}
	return bytes
}

// processes are the server's process and its children: PostgreSQL has one for each connection.
func (m meter) processes() []int {
	if m.pid == 0 {
		return nil
	}
	pids := []int{m.pid}
	if m.engine != migrate.Postgres {
		return pids
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err == nil && parentOf(pid) == m.pid {
			pids = append(pids, pid)
		}
	}
	return pids
}

// serverPID returns the process id of the server; of SQLite that of this process.
func (a *app) serverPID(ctx context.Context) (pid int, err error) {
	program := "mysqld"
	switch a.engine {
	case migrate.SQLite:
		return os.Getpid(), nil
	case migrate.Postgres:
		program = "postgres"
		if pid, err = a.number(ctx, "SELECT pg_backend_pid()"); err != nil {
			return 0, err
		}
		pid = parentOf(pid)
	default:
		var file string
		if err = a.db.QueryRowContext(ctx, "SELECT @@pid_file").Scan(&file); err != nil {
			return 0, err
		}
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		if a.kind.name == "mariadb" {
			program = "mariadbd"
		}
	}
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if !strings.Contains(string(command), program) { // a process of another machine, or of a container
		return 0, nil
	}
	return pid, nil
}

// statOf returns the fields of /proc/PID/stat from the third on: those after the program's name.
func statOf(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

func parentOf(pid int) int {
	fields := statOf(pid)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// cpuOf returns the CPU time of a process and of those of its children that have ended.
func cpuOf(pid int) time.Duration {
	fields := statOf(pid)
	if len(fields) < 15 { // it has ended
		return 0
	}
	ticks := 0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.Atoi(field)
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// logged returns how many bytes the server has ever written to its logs.
func (m meter) logged(ctx context.Context) (float64, error) {
	query := "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status " +
		"WHERE variable_name = 'Innodb_lsn_current'"
	switch {
	case m.engine == migrate.SQLite:
		text, err := os.ReadFile("/proc/self/io")
		_, written, _ := strings.Cut(string(text), "wchar: ")
		var n float64
		_, _ = fmt.Sscan(written, &n)
		return n, err
	case m.engine == migrate.Postgres:
		query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
	case m.kind.name == "mysql":
		query = "SELECT CAST(variable_value AS SIGNED) FROM performance_schema.global_status " +
			"WHERE variable_name = 'Innodb_redo_log_current_lsn'"
	}
	n, err := m.number(ctx, query)
	if err != nil || m.engine == migrate.Postgres {
		return float64(n), err
	}
	binary, err := m.binaryLog(ctx)
	return float64(n) + binary, err
}

// binaryLog returns the size of all files of the binary log, which is 0 where there is none.
func (m meter) binaryLog(ctx context.Context) (size float64, err error) {
	if on, err := m.number(ctx, "SELECT @@log_bin"); err != nil || on == 0 {
		return 0, err
	}
	files, err := m.db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return 0, err
	}
	defer files.Close()
	columns, err := files.Columns()
	if err != nil {
		return 0, err
	}
	row := make([]any, len(columns))
	for i := range row {
		row[i] = new(any)
	}
	var bytes float64
	row[1] = &bytes
	for files.Next() {
		if err := files.Scan(row...); err != nil {
			return 0, err
		}
		size += bytes
	}
	return size, files.Err()
}

// tableBytes returns the size of a table with its indexes.
func (a *app) tableBytes(b testing.TB, table string) float64 {
	b.Helper()
	query := "SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name = '%s')"
	switch a.engine {
	case migrate.Postgres:
		query = "SELECT pg_total_relation_size('%s')"
	case migrate.MySQL:
		require.NoError(b, a.exec(b.Context(), "ANALYZE TABLE "+table)) // else the size is that of an earlier moment
		query = "SELECT CAST(data_length + index_length AS SIGNED) FROM information_schema.tables " +
			"WHERE table_schema = DATABASE() AND table_name = '%s'"
	}
	n, err := a.number(b.Context(), fmt.Sprintf(query, table))
	require.NoError(b, err)
	return float64(n)
}
