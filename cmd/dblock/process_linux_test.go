package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// parental makes the command the parent of its descendants' orphans, as PID 1 is.
const parental = "DBLOCK_TEST_PARENTAL"

// continued makes the command one that says in files that it is ready and that it was continued. It
// ends with status 7 at ^C. A shell would not do: one that is starting a program does not stop.
const continued = "DBLOCK_TEST_CONTINUED"

func init() {
	if os.Getenv(continued) != "" {
		sayContinued()
	}
	if os.Getenv(parental) == "" {
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
}

func sayContinued() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCONT, syscall.SIGINT)
	_ = os.WriteFile("ready", nil, 0o600)
	for s := range signals {
		if s == syscall.SIGINT {
			os.Exit(7)
		}
		_ = os.WriteFile("continued", nil, 0o600)
	}
}

// As the entry point of a container, run is the parent of orphans. Broken by a zombie that stays
// until the container ends, and by the status of an orphan in place of the command's.
func TestRunReapsOrphans(t *testing.T) {
	const orphan = `pid=$(sh -c 'sh -c "sleep 0.05; exit 7" >/dev/null & echo $!')
for i in $(seq 1000); do [ -e /proc/$pid ] || exit 42; sleep 0.01; done`
	w := onSQLite(t)
	c := w.command("run", "n", "--", "sh", "-c", orphan)
	c.Env = append(c.Env, parental+"=1")
	if s := outcome(t, c); s.status != 42 || s.err != "" {
		t.Errorf("%+v", s)
	}
}

// terminal starts a shell with a script in a terminal of its own, where "7" was typed. $DBLOCK is
// the command, and asks is a command that reads the terminal, and ends with what was typed. stopped
// waits for all threads of a process: Linux continues an orphan only if all of them have stopped.
func (w *world) terminal(script string) (shell *exec.Cmd, screen *os.File) {
	w.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(w, err)
	w.Cleanup(func() { _ = screen.Close() })
	raw, err := screen.SyscallConn()
	require.NoError(w, err)
	var n int
	require.NoError(w, raw.Control(func(fd uintptr) {
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		err = errors.Join(err, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
	}))
	require.NoError(w, err)
	inside, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(w, err)
	defer inside.Close()
	c := w.command()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	shell = exec.CommandContext(ctx, "sh", "-c", `asks() { exec "$DBLOCK" run n -- sh -c 'read x </dev/tty; exit "$x"'; }
stopped() { while [ "$(grep -L "^State:.T" /proc/$1/task/*/status)" ]; do sleep 0.01; done; }
`+script)
	shell.Dir, shell.Env = w.TempDir(), append(c.Env, "DBLOCK="+c.Path)
	shell.Stdin, shell.Stdout, shell.Stderr = inside, inside, inside
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(w, shell.Start())
	require.NoError(w, assert.ErrOf(screen.WriteString("7\n")))
	go func() { _, _ = io.Copy(io.Discard, screen) }()
	return shell, screen
}

// Broken by a command that is stopped for ever, and its lock with it.
func TestACommandThatReadsTheTerminalIsAJobOfItsShell(t *testing.T) {
	for says, script := range map[string]string{
		"its input is from elsewhere":       `(asks </dev/null)`,
		"in the background of a script":     `asks & wait $!`,
		"in the background, and then fg":    `set -m; asks & stopped $!; fg`,
		"bg does not help, and fg does":     `set -m; asks & stopped $!; bg; stopped $!; fg`,
		"fg, where it was in front already": `set -m; (asks); s=$?; read y; exit $s`,
	} {
		t.Run(says, func(t *testing.T) {
			w := onSQLite(t)
			shell, screen := w.terminal(script)
			if strings.Contains(script, "read y;") { // the shell has its terminal again
				require.NoError(t, assert.ErrOf(screen.WriteString("\n")))
			}
			_ = shell.Wait()
			assert.Equal(t, shell.ProcessState.ExitCode(), 7, "the exit status of the command")
		})
	}
}

// Broken by a run that keeps its lock beyond the end of its terminal.
func TestAStoppedCommandEndsWithItsTerminal(t *testing.T) {
	for says, script := range map[string]string{
		"its terminal ends":        `set -m; asks & echo $! >pid; stopped $!; echo >ready; read x; read y`,
		"its shell is gone before": `set -m; (asks 2>said & echo $! >pid); echo >ready; read x; read y`,
	} {
		t.Run(says, func(t *testing.T) {
			w := onSQLite(t)
			shell, screen := w.terminal(script)
			w.until(func() bool { return assert.ErrOf(os.Stat(filepath.Join(shell.Dir, "ready"))) == nil })
			if says == "its terminal ends" {
				require.NoError(t, screen.Close())
			}
			pid, err := os.ReadFile(filepath.Join(shell.Dir, "pid"))
			require.NoError(t, err)
			w.until(func() bool {
				status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/status")
				return err != nil || strings.Contains(string(status), "State:\tZ")
			})
			info, err := inspect.New(w.client).Lock(t.Context(), "n")
			if err != nil || len(info.Holders) > 0 {
				t.Errorf("it is held by %+v, %v", info.Holders, err)
			}
			if says != "its terminal ends" {
				w.fileWith(filepath.Join(shell.Dir, "said"), errNoTerminal.Error())
			}
			_ = screen.Close()
			_ = shell.Wait()
		})
	}
}

// Broken by a run that waits for a shell where there is none, such as in a container with a
// terminal: ^Z stops the command for ever, and the lock is kept.
func TestACommandIsNotStoppedWhereNoShellCouldContinueIt(t *testing.T) {
	const (
		run   = `"$DBLOCK" run n -- env ` + continued + `=1 "$DBLOCK"`
		apart = "unshare --pid --fork --mount-proc"
	)
	for says, script := range map[string]string{
		"the terminal is its own": "exec " + run,
		"in a script":             run + "; exit $?",
		"PID 1":                   "exec " + apart + " setsid --ctty " + run,
	} {
		t.Run(says, func(t *testing.T) {
			if says == "PID 1" && exec.Command("sh", "-c", apart+" setsid true").Run() != nil {
				t.Skip("a namespace of processes needs root, and unshare and setsid of util-linux")
			}
			w := onSQLite(t)
			shell, screen := w.terminal(script)
			for _, step := range []struct{ file, types string }{{"ready", "\x1a"}, {"continued", "\x03"}} { // ^Z, ^C
				w.until(func() bool { return assert.ErrOf(os.Stat(filepath.Join(shell.Dir, step.file))) == nil })
				require.NoError(t, assert.ErrOf(screen.WriteString(step.types)))
			}
			_ = shell.Wait()
			assert.Equal(t, shell.ProcessState.ExitCode(), 7, "the exit status of the command")
		})
	}
}

// Broken by a stopped command that would get the signal only when it continues, and keeps the lock.
func TestASignalEndsAStoppedCommand(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
		t.Run(s.String(), func(t *testing.T) {
			w := onSQLite(t)
			file := filepath.Join(t.TempDir(), "pid")
			c := w.command("run", "n", "--", "sh", "-c", "echo $$ >$0; exec sleep 600", file)
			require.NoError(t, c.Start())
			pid := w.pidIn(file)
			require.NoError(t, syscall.Kill(-pid, syscall.SIGSTOP))
			w.until(func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return err == nil && strings.Contains(string(stat), ") T ")
			})
			require.NoError(t, c.Process.Signal(s))
			_ = c.Wait()
			assert.Equal(t, c.ProcessState.ExitCode(), 128+int(s), "the exit status of the command")
		})
	}
}
