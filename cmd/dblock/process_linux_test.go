package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

func init() {
	if os.Getenv(parental) == "" {
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
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
// the command, and asks is a command that reads the terminal, and ends with what was typed.
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
stopped() { until grep -q "^State:.T" "/proc/$1/status"; do sleep 0.01; done; }
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
