package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/testing/program"
)

// local is a server from binaries of this machine, with its data in a temporary folder.
type local struct {
	kind, dsn string
	dir       string
	program   *program.Program
}

// Install is a server that is installed on this machine: how to make its data and how to run it, in
// a folder and on a port.
type Install struct {
	users []string // root runs it as the first that exists
	init  func(dir string) []string
	run   func(dir string, port int) []string
	dsn   string // of the port
	sql   string // for the server's init file
}

// startLocal makes a new server and waits until it answers. The settings are arguments of its
// command line.
func startLocal(ctx context.Context, kind string, settings ...string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if kind == KindVitess {
		return startVitess(ctx, settings)
	}
	in, from, err := Installed(kind)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "dblock-"+kind+"-")
	if err != nil {
		return nil, err
	}
	l, err := in.start(ctx, kind, dir, settings)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", from, err), os.RemoveAll(dir))
	}
	return &Server{Kind: kind, DSN: l.dsn, From: from, control: l}, nil
}

func (in Install) start(ctx context.Context, kind, dir string, settings []string) (*local, error) {
	as, err := program.Unprivileged(in.users...)
	if err != nil {
		return nil, err
	}
	if err := in.Make(ctx, as, dir); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	l := &local{kind: kind, dir: dir, dsn: in.DSN(port)}
	l.program = in.Program(as, dir, port, settings...)
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.kill())
	}
	return l, nil
}

// Make makes the data of a new server in a folder.
func (in Install) Make(ctx context.Context, as *program.Account, dir string) error {
	if in.sql != "" {
		if err := os.WriteFile(filepath.Join(dir, "init.sql"), []byte(in.sql), 0o644); err != nil {
			return err
		}
	}
	if err := as.Own(dir); err != nil {
		return err
	}
	if out, err := as.Command(ctx, dir, in.init(dir)).CombinedOutput(); err != nil {
		return fmt.Errorf("make the data: %w\n%s", err, tail(out))
	}
	return nil
}

// Program runs the server whose data is in a folder. The settings are arguments of its command
// line.
func (in Install) Program(as *program.Account, dir string, port int, settings ...string) *program.Program {
	return &program.Program{As: as, Dir: dir, Args: append(in.run(dir, port), settings...)}
}

// DSN is the data source of the server on a port.
func (in Install) DSN(port int) string { return fmt.Sprintf(in.dsn, port) }

// start starts the process, again and again until it keeps running: PostgreSQL ends at once while a
// process of its predecessor still has the shared memory.
func (l *local) start(ctx context.Context) error {
	for {
		if err := l.program.Start(); err != nil {
			return err
		}
		err := ready(ctx, l.kind, l.dsn, l.program.Ended())
		if err == nil {
			return nil
		}
		out, _ := os.ReadFile(l.program.Log())
		if ctx.Err() != nil || !strings.Contains(string(out), "pre-existing shared memory block") {
			return fmt.Errorf("%w\n%s", err, tail(out))
		}
	}
}

func (l *local) spent() (user, kernel time.Duration) { return l.program.Spent() }

func (l *local) kill() error   { return l.program.Kill() }
func (l *local) pause() error  { return l.program.Pause() }
func (l *local) resume() error { return l.program.Resume() }
func (l *local) remove() error { return errors.Join(l.kill(), os.RemoveAll(l.dir)) }

func tail(out []byte) []byte { return out[max(0, len(out)-2000):] }

// Installed is the server of a kind on this machine, and where it is: the folder of PostgreSQL's
// programs, the path of MariaDB's server, the command of MySQL's.
func Installed(kind string) (Install, string, error) {
	switch kind {
	case KindPostgres:
		bin, err := postgresBin()
		return postgresInstall(bin), bin, err
	case KindMariaDB:
		daemon, err := mariadbd()
		return mariadbInstall(daemon), daemon, err
	case KindMySQL:
		command, err := mysqld()
		return mysqlInstall(command), strings.Join(command, " "), err
	case KindTiDB:
		server, err := tidbServer()
		return tidbInstall(server), server, err
	}
	return Install{}, "", fmt.Errorf("no local %s", kind)
}

// postgresBin is the folder of initdb and postgres; Debian keeps it out of PATH, one for each
// version.
func postgresBin() (string, error) {
	if bin := os.Getenv("DBLOCK_TEST_PG_BIN"); bin != "" {
		return bin, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	slices.SortFunc(found, func(a, b string) int { return postgresVersion(b) - postgresVersion(a) })
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	for _, path := range found {
		bin := filepath.Dir(path)
		if executable(path) && executable(filepath.Join(bin, "initdb")) {
			return bin, nil
		}
	}
	return "", errors.New("postgres and initdb are neither in /usr/lib/postgresql nor in PATH")
}

func postgresVersion(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

func postgresInstall(bin string) Install {
	return Install{
		users: []string{"postgres", "nobody"},
		init: func(dir string) []string {
			return []string{filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"), "-U", "postgres",
				"-A", "trust", "-N", "-E", "UTF8", "--locale=C"}
		},
		run: func(dir string, port int) []string {
			args := []string{filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port),
				"-k", dir}
			for _, setting := range []string{
				"listen_addresses=127.0.0.1", "max_connections=300", "shared_buffers=64MB",
				"fsync=off", "full_page_writes=off", // the processes are killed, never the machine
				"dynamic_shared_memory_type=mmap", // in its own folder: a killed server cannot remove it
			} {
				args = append(args, "-c", setting)
			}
			return args
		},
		dsn: "postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable",
	}
}

// mariadbd is the path of MariaDB's server; mariadb-install-db lies beside it or in ../bin.
func mariadbd() (string, error) {
	if bin := os.Getenv("DBLOCK_TEST_MARIADB_BIN"); bin != "" {
		return filepath.Join(bin, "mariadbd"), nil
	}
	paths := []string{"/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd"}
	if path, err := exec.LookPath("mariadbd"); err == nil {
		paths = append([]string{path}, paths...)
	}
	for _, path := range paths {
		if !executable(path) {
			continue
		}
		// Debian has a program that mariadb-install-db calls in another package.
		if helper := filepath.Join(filepath.Dir(filepath.Dir(path)), "bin/my_print_defaults"); !executable(helper) {
			return "", fmt.Errorf("%s is there without %s (package mariadb-client-core)", path, helper)
		}
		return path, nil
	}
	return "", errors.New("mariadbd is neither in PATH nor in /usr/sbin")
}

// mysqlSQL makes the database that the DSN names. The server listens on 127.0.0.1 only.
const mysqlSQL = "CREATE DATABASE IF NOT EXISTS test;\n"

func mariadbInstall(daemon string) Install {
	base := filepath.Dir(filepath.Dir(daemon))
	common := func(dir string) []string {
		args := []string{"--no-defaults", "--basedir=" + base, "--datadir=" + filepath.Join(dir, "data")}
		if plugins := filepath.Join(base, "lib/mysql/plugin"); executable(plugins) {
			args = append(args, "--plugin-dir="+plugins)
		}
		return args
	}
	return Install{
		users: []string{"mysql", "nobody"},
		init: func(dir string) []string {
			script := filepath.Join(filepath.Dir(daemon), "mariadb-install-db")
			if !executable(script) {
				script = filepath.Join(base, "bin", "mariadb-install-db")
			}
			return append(append([]string{script}, common(dir)...),
				"--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-flush-log-at-trx-commit=0")
		},
		run: func(dir string, port int) []string {
			return append(append([]string{daemon}, common(dir)...), mysqlSettings(dir, port)...)
		},
		dsn: "root@tcp(127.0.0.1:%d)/test",
		sql: mysqlSQL,
	}
}

func mysqlSettings(dir string, port int) []string {
	return []string{
		"--tmpdir=" + dir, "--init-file=" + filepath.Join(dir, "init.sql"), "--pid-file=" + filepath.Join(dir, "pid"),
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port), "--socket=" + filepath.Join(dir, "s"),
		"--skip-name-resolve", "--max-connections=300",
		"--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M", // a killed process loses nothing by 2
	}
}

// mysqld is the command that runs MySQL's server: a path, or with its loader and options. Where
// MariaDB is installed, mysqld is MariaDB's.
func mysqld() ([]string, error) {
	if command := strings.Fields(os.Getenv("DBLOCK_TEST_MYSQLD")); len(command) > 0 {
		return command, nil
	}
	paths := []string{"/usr/sbin/mysqld"}
	if path, err := exec.LookPath("mysqld"); err == nil {
		paths = append([]string{path}, paths...)
	}
	for _, path := range paths {
		if !executable(path) {
			continue
		}
		if out, err := exec.Command(path, "--version").Output(); err == nil && !strings.Contains(string(out),
			"MariaDB") {
			return []string{path, "--no-defaults"}, nil
		}
	}
	return nil, errors.New("mysqld is neither in PATH nor in /usr/sbin, or is MariaDB's")
}

func mysqlInstall(command []string) Install {
	common := func(dir string) []string {
		return append(slices.Clone(command), "--datadir="+filepath.Join(dir, "data"), "--mysqlx=0",
			"--secure-file-priv=NULL")
	}
	return Install{
		users: []string{"mysql", "nobody"},
		init: func(dir string) []string {
			return append(common(dir), "--initialize-insecure", "--tmpdir="+dir, "--innodb-flush-log-at-trx-commit=0")
		},
		run: func(dir string, port int) []string {
			return append(common(dir), append(mysqlSettings(dir, port), "--sync-binlog=0")...)
		},
		dsn: "root@tcp(127.0.0.1:%d)/test",
		// initialize-insecure makes root@localhost only, which TCP without name resolution is not.
		sql: mysqlSQL + "CREATE USER IF NOT EXISTS root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH " +
			"GRANT OPTION;\n",
	}
}

// tidbServer is the path of TiDB's server.
func tidbServer() (string, error) {
	if server := os.Getenv("DBLOCK_TEST_TIDB_SERVER"); server != "" {
		return server, nil
	}
	server, err := exec.LookPath("tidb-server")
	if err != nil {
		return "", errors.New("tidb-server is not in PATH")
	}
	return server, nil
}

// tidbInstall is one SQL node of TiDB with a store in its own process.
func tidbInstall(server string) Install {
	return Install{
		users: []string{"mysql", "nobody"},
		init:  func(string) []string { return []string{"true"} },
		run: func(dir string, port int) []string {
			return []string{server, "--store=unistore", "--path=" + filepath.Join(dir, "data"), "--host=127.0.0.1",
				"-P", strconv.Itoa(port), "--socket=" + filepath.Join(dir, "s"), "--report-status=false",
				"--temp-dir=" + filepath.Join(dir, "tmp"), "--log-file=" + filepath.Join(dir, "tidb.log"), "-L", "warn"}
		},
		dsn: "root@tcp(127.0.0.1:%d)/test",
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}
