package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// Servers of a test's own, from binaries of this machine. They run as a user who is not root, in a
// folder which that user may enter.

// aside is a folder and a user for servers.
type aside struct {
	*testing.T
	dir string
	as  *syscall.Credential // nil: whoever runs the test
}

func newAside(t *testing.T) aside {
	t.Helper()
	dir, err := os.MkdirTemp("", "dblock-doctor-") // not the test's folder, which other users may not enter
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := aside{T: t, dir: dir}
	if os.Geteuid() != 0 {
		return a
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		a.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		require.NoError(t, os.Chown(dir, uid, gid))
		return a
	}
	t.Fatal("root may not run a server, and there is no other user")
	return a
}

// command dies with this process, so that a test that panics leaves no server.
func (a aside) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = a.dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: a.as, Pdeathsig: syscall.SIGKILL}
	return c
}

// must runs a program to its end.
func (a aside) must(args ...string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := a.command(ctx, args...).CombinedOutput(); err != nil {
		a.Fatalf("%q: %v\n%s", args, err, out)
	}
}

// serve runs a server on a free port until the test ends, and returns when it listens there. args
// are its arguments for a port. Others may take the port before the server does: then it ends, and
// is started on another.
func (a aside) serve(args func(port int) []string) (port int) {
	a.Helper()
	for try := 1; ; try++ {
		port := freePort(a.T)
		said, err := a.start(port, args(port))
		switch {
		case err == nil:
			return port
		case try < 5 && strings.Contains(strings.ToLower(said), "address already in use"):
			a.Logf("port %d was taken", port)
		default:
			a.Fatalf("%q: %v: %s", args(port), err, said)
		}
	}
}

// start returns an error and what the server said where it does not come to listen.
func (a aside) start(port int, args []string) (string, error) {
	c := a.command(context.Background(), args...)
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig goes by the thread
		defer close(ended)
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait()
		}
	}()
	if err := <-started; err != nil {
		return "", err
	}
	a.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGQUIT) // PostgreSQL: ends its children at once
		select {
		case <-ended:
		case <-time.After(patience):
			_ = c.Process.Kill()
			<-ended
		}
	})
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if listensOn(c.Process.Pid, port) {
			return "", nil
		}
		select {
		case <-ended:
			return said.String(), errors.New("it has ended")
		default:
		}
	}
	return "", errors.New("it does not listen")
}

func TestAServerOfATestTakesAnotherPortWhereItsOwnIsTaken(t *testing.T) {
	onPostgres(t, func(w *world) {
		var first int
		w.pgBouncerOn(func(port int) {
			if first != 0 {
				return
			}
			first = port
			taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			require.NoError(w, err)
			w.Cleanup(func() { _ = taken.Close() })
		}, "session")
	})
}

// listensOn reports whether a process listens on a port of 127.0.0.1. That somebody answers there
// does not tell.
func listensOn(pid, port int) bool {
	sockets, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return false
	}
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	open, _ := os.ReadDir(folder)
	for line := range strings.Lines(string(sockets)) {
		f := strings.Fields(line) // number, local address, remote, state: 0A listens, …, inode
		if len(f) < 10 || f[1] != fmt.Sprintf("0100007F:%04X", port) || f[3] != "0A" {
			continue
		}
		for _, each := range open {
			if is, _ := os.Readlink(filepath.Join(folder, each.Name())); is == "socket:["+f[9]+"]" {
				return true
			}
		}
	}
	return false
}

// freePort may return one that is taken at once.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// lacks skips a test for want of a program, unless DBLOCK_TEST_REQUIRE has it.
func lacks(t *testing.T, what string, err error) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("DBLOCK_TEST_REQUIRE"), ","), what) {
		t.Fatal(err)
	}
	t.Skip(err)
}

// program finds one by an environment variable, in PATH, or in a place of Debian's.
func program(variable, name, pattern string) (string, error) {
	if path := os.Getenv(variable); path != "" {
		return path, nil
	}
	if found, _ := filepath.Glob(pattern); len(found) > 0 {
		return found[len(found)-1], nil
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return filepath.EvalSymlinks(path)
	}
	return "", errors.New(name + " is neither in PATH nor " + pattern + ", and " + variable + " does not name it")
}

// pgBouncer is a data source of the test's database through a PgBouncer of its own.
func (w *world) pgBouncer(mode string, settings ...string) (dsn string) {
	w.Helper()
	return w.pgBouncerOn(func(int) {}, mode, settings...)
}

// pgBouncerOn calls before with a port that was free.
func (w *world) pgBouncerOn(before func(port int), mode string, settings ...string) (dsn string) {
	w.Helper()
	binary, err := program("DBLOCK_TEST_PGBOUNCER", "pgbouncer", "/usr/sbin/pgbouncer")
	if err != nil {
		lacks(w.T, "pgbouncer", err)
	}
	a := newAside(w.T)
	server := w.url()
	secret := ""
	if password, has := server.User.Password(); has {
		secret = " password='" + strings.ReplaceAll(password, "'", "''") + "'"
	}
	file := filepath.Join(a.dir, "ini")
	port := a.serve(func(port int) []string {
		ini := fmt.Sprintf("[databases]\n* = host=%s port=%s user=%s%s\n[pgbouncer]\nlisten_addr = "+
			"127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"+
			"auth_type = any\npool_mode = %s\n%s\n", server.Hostname(), server.Port(), server.User.Username(), secret,
			port, mode, strings.Join(settings, "\n"))
		require.NoError(w, os.WriteFile(file, []byte(ini), 0o644))
		before(port)
		return []string{binary, file}
	})
	server.Host = fmt.Sprintf("127.0.0.1:%d", port)
	server.RawQuery = "sslmode=disable"
	return server.String()
}

// primary is a PostgreSQL of a test's own, and the folder of its programs.
type primary struct {
	aside
	bin  string
	port int
}

// newPrimary makes one with these settings. It waits for the disk, as servers do.
func newPrimary(t *testing.T, settings ...string) primary {
	t.Helper()
	if only := os.Getenv("DBLOCK_TEST_ONLY"); only != "" && !strings.Contains(only, "postgres") {
		t.Skip("DBLOCK_TEST_ONLY has no postgres")
	}
	bin := os.Getenv("DBLOCK_TEST_PG_BIN")
	if bin == "" {
		initdb, err := program("", "initdb", "/usr/lib/postgresql/*/bin/initdb")
		if err != nil {
			lacks(t, "postgres", err)
		}
		bin = filepath.Dir(initdb)
	}
	p := primary{newAside(t), bin, 0}
	p.must(filepath.Join(bin, "initdb"), "-D", filepath.Join(p.dir, "data"), "-U", "postgres", "-A", "trust", "-N",
		"-E", "UTF8", "--locale=C")
	p.port = p.run("data", settings...)
	return p
}

// run runs a server on a folder.
func (p primary) run(folder string, settings ...string) (port int) {
	p.Helper()
	args := []string{filepath.Join(p.bin, "postgres"), "-D", filepath.Join(p.dir, folder), "-k", p.dir}
	for _, s := range append([]string{"listen_addresses=127.0.0.1", "shared_buffers=16MB"}, settings...) {
		args = append(args, "-c", s)
	}
	return p.serve(func(port int) []string { return append(slices.Clone(args), "-p", strconv.Itoa(port)) })
}

func (p primary) dsn(port int) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

// standby follows the primary.
func (p primary) standby(settings ...string) (dsn string) {
	p.Helper()
	p.must(filepath.Join(p.bin, "pg_basebackup"), "-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "postgres", "-D",
		filepath.Join(p.dir, "standby"), "-R", "-c", "fast", "--no-sync")
	return p.dsn(p.run("standby", settings...))
}
