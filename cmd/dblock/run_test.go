//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestRunEndsAsItsCommandDoes(t *testing.T) {
	eachProcess(t, func(w *world) {
		s := w.process("run", "n", "--", "sh", "-c", `echo "$DBLOCK_NAME $DBLOCK_TOKEN"; exit 3`)
		name, token, _ := strings.Cut(strings.TrimSpace(s.out), " ")
		if n, err := strconv.ParseInt(token, 10, 64); s.status != 3 || s.err != "" || name != "n" || err != nil ||
			n < 1 {
			w.Fatalf("%+v", s)
		}
		contains(w, w.must("ls"), "No lock is held")
	})
}

func TestRunTellsWhatBecameOfItsCommand(t *testing.T) {
	w := onSQLite(t)
	for _, c := range []struct {
		says      string
		arguments []string
		status    int
	}{
		{"success", []string{"run", "n", "--", "true"}, 0},
		{"killed", []string{"run", "n", "--", "sh", "-c", "kill -9 $$"}, 137},
		{"not found", []string{"run", "n", "--", "dblock-test-nothing"}, 127},
		{"no program", []string{"run", "n", "--", "/"}, 126},
		{"several names", []string{"run", "b", "a", "--", "sh", "-c",
			`test "$DBLOCK_NAME" = "b a" && test "${DBLOCK_TOKEN#* }" -gt 0`}, 0},
		{"permits", []string{"run", "--permits", "1/2", "n", "--", "true"}, 0},
		{"no command", []string{"run", "n"}, exitUsage},
		{"no name", []string{"run", "--", "true"}, exitUsage},
		{"a grace that is too long", []string{"run", "--ttl", "10s", "--grace", "6s", "n", "--", "true"}, exitUsage},
		{"no permits", []string{"run", "--permits", "one", "n", "--", "true"}, exitUsage},
		{"two ways to wait", []string{"run", "-n", "-w", "1s", "n", "--", "true"}, exitUsage},
		{"a schedule of nothing", []string{"run", "--slot-of", "at dawn", "n", "--", "true"}, exitUsage},
		{"a zone of nowhere", []string{"run", "--slot-of", "* * * * *", "--tz", "Atlantis/Capital", "n", "--", "true"},
			exitUsage},
		{"a zone without a schedule", []string{"run", "--tz", "Europe/Berlin", "n", "--", "true"}, exitUsage},
		{"lateness of an interval", []string{"run", "--once-per", "1h", "--late", "1h", "n", "--", "true"}, exitUsage},
		{"slots of two kinds", []string{"run", "--slot-of", "* * * * *", "--once-per", "1h", "n", "--", "true"},
			exitUsage},
		{"a schedule that an unset variable names", []string{"run", "--slot-of", "", "n", "--", "true"}, exitUsage},
		{"an unset zone", []string{"run", "--slot-of", "* * * * *", "--tz", "", "n", "--", "true"}, exitUsage},
		{"no lateness", []string{"run", "--slot-of", "* * * * *", "--late", "0s", "n", "--", "true"}, exitUsage},
		{"less than none", []string{"run", "--slot-of", "* * * * *", "--late", "-1s", "n", "--", "true"}, exitUsage},
		{"no interval", []string{"run", "--once-per", "0", "n", "--", "true"}, exitUsage},
		{"an interval into the past", []string{"run", "--once-per", "-1h", "n", "--", "true"}, exitUsage},
		{"unset permits", []string{"run", "--permits", "", "n", "--", "true"}, exitUsage},
		{"an unset owner", []string{"run", "--owner", "", "n", "--", "true"}, exitUsage},
		{"no lease", []string{"run", "--lease", "0s", "n", "--", "true"}, exitUsage},
	} {
		if s := w.process(c.arguments...); s.status != c.status || s.status != 0 && s.status != 137 && s.err == "" {
			t.Errorf("%s: %+v, want status %d", c.says, s, c.status)
		}
	}
}

func TestRunDoesNotWaitLongerThanItIsTold(t *testing.T) {
	eachProcess(t, func(w *world) {
		l := w.lock("n")
		for _, c := range []struct {
			arguments []string
			status    int
		}{
			{[]string{"run", "--no-wait", "n", "--", "true"}, exitNotFree},
			{[]string{"run", "--no-wait", "-E", "0", "n", "--", "true"}, 0},
			{[]string{"run", "--wait", "4s", "-E", "75", "n", "--", "true"}, 75},
		} {
			if s := w.process(c.arguments...); s.status != c.status ||
				!strings.Contains(s.err, "not acquired") || !strings.Contains(s.err, "(held by there thread") {
				w.Errorf("%q: %+v, want %d", c.arguments, s, c.status)
			}
		}
		c := w.command("run", "n", "--", "true")
		require.NoError(w, c.Start())
		w.queued("n", 1)
		require.NoError(w, l.Unlock(w.Context()))
		assert.NoError(w, c.Wait())
	})
}

// queued waits until so many wait.
func (w *world) queued(name string, n int) {
	w.Helper()
	w.until(func() bool {
		info, err := inspect.New(w.client).Lock(w.Context(), name)
		return err == nil && info.Queued == n
	})
}

// fileWith waits for a file to have a text.
func (w *world) fileWith(file, text string) {
	w.Helper()
	w.until(func() bool {
		is, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(is), text)
	})
}

func TestASignalEndsTheWaitAndReachesWhatRuns(t *testing.T) {
	w := onSQLite(t)
	l := w.lock("n")
	c := w.command("run", "n", "--", "true")
	require.NoError(t, c.Start())
	w.queued("n", 1)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	if _ = c.Wait(); c.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("while it waited: %v", c.ProcessState)
	}
	w.queued("n", 0)
	require.NoError(t, l.Unlock(t.Context()))

	// The command, and one that it has started, end with it.
	file := filepath.Join(t.TempDir(), "pid")
	c = w.command("run", "n", "--", "sh", "-c", `sleep 600 & echo $! >$0.new; mv $0.new $0; wait`, file)
	require.NoError(t, c.Start())
	pid := w.pidIn(file)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	if _ = c.Wait(); c.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("while it ran: %v", c.ProcessState)
	}
	w.until(func() bool { return dead(pid) })
	contains(t, w.must("ls"), "No lock is held")
}

// pidIn waits for the number of a process.
func (w *world) pidIn(file string) int {
	w.Helper()
	w.fileWith(file, "\n")
	text, err := os.ReadFile(file)
	require.NoError(w, err)
	return int(number(w.T, string(text)))
}

// dead reports whether a process has ended, whoever is to take note of that.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil && syscall.Kill(pid, 0) != nil || bytes.Contains(stat, []byte(") Z "))
}

func TestTheCommandDiesWithARunThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	w := onSQLite(t)
	file := filepath.Join(t.TempDir(), "pid")
	c := w.command("run", "n", "--", "sh", "-c", `echo $$ >$0.new; mv $0.new $0; while :; do sleep 0.01; done`, file)
	require.NoError(t, c.Start())
	pid := w.pidIn(file)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
	w.until(func() bool { return dead(pid) })
}

func TestAChildOfTheCommandKeepsTheLockOfARunThatIsKilled(t *testing.T) {
	w := onSQLite(t)
	file := filepath.Join(t.TempDir(), "pid")
	c := w.command("run", "--ttl", "5m", "n", "--", "sh", "-c", `sleep 600 & echo $! >$0.new; mv $0.new $0; wait`, file)
	require.NoError(t, c.Start())
	pid := w.pidIn(file)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
	again := func() error { return w.command("run", "--no-wait", "n", "--", "true").Run() }
	assert.Error(t, again(), "while the child lives")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	w.until(func() bool { return again() == nil })
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	require.NoError(t, err)
	return n
}

func TestTheCommandIsToldAtOnceThatTheLockWasTakenAway(t *testing.T) {
	eachProcess(t, func(w *world) {
		c := w.command("run", "--ttl", "5m", "n", "--", "sh", "-c", "while :; do sleep 0.01; done")
		var complaint screen
		c.Stderr = &complaint
		require.NoError(w, c.Start())
		var info inspect.Info
		w.until(func() bool {
			var err error
			info, err = inspect.New(w.client).Lock(w.Context(), "n")
			return err == nil && len(info.Holders) == 1
		})
		w.must("ask", "n", "--reason", "it is needed")
		w.until(func() bool { return complaint.shows(`another client wants "n": it is needed`) })
		w.must("break", "n", "--token", fmt.Sprint(info.Token), "--reason", "a test", "--yes")
		if _ = c.Wait(); c.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
			w.Errorf("%v: %s", c.ProcessState, complaint.text.String())
		}
		contains(w, complaint.text.String(), "the lock is lost")
	})
}

func TestACommandThatEndsWellAfterItsLockWasLostHasNotSucceeded(t *testing.T) {
	w := onSQLite(t)
	c := w.command("run", "n", "--", "sh", "-c", `trap "exit 0" TERM; while :; do sleep 0.01; done`)
	require.NoError(t, c.Start())
	w.until(func() bool {
		info, err := inspect.New(w.client).Lock(t.Context(), "n")
		return err == nil && len(info.Holders) == 1
	})
	require.NoError(t, require.ErrOf(w.client.Break(t.Context(), "n", "a test")))
	if _ = c.Wait(); c.ProcessState.ExitCode() == 0 {
		t.Error("it has")
	}
}

func TestOneOfManyHostsRunsASlot(t *testing.T) {
	eachProcess(t, func(w *world) {
		ran := filepath.Join(w.TempDir(), "ran")
		all := func(hosts int, arguments ...string) {
			w.Helper()
			var running sync.WaitGroup
			for range hosts {
				c := w.command(append(append([]string{"run"}, arguments...), "--", "sh", "-c", "echo x >>$0", ran)...)
				running.Go(func() {
					if out, err := c.CombinedOutput(); err != nil {
						w.Errorf("%v: %s", err, out)
					}
				})
			}
			running.Wait()
		}
		all(6, "--slot-of", "*/2 * * * *", "cron")
		slots := strings.Count(w.must("runs", "cron", "--json"), "\n") // 2 where the minute has just changed
		if n := lines(w.T, ran); n != slots || n < 1 || n > 2 {
			w.Errorf("%d runs of %d slots", n, slots)
		}
		require.NoError(w, os.Remove(ran))
		all(3, "--once-per", "24h", "day")
		if n := lines(w.T, ran); n != strings.Count(w.must("runs", "day", "--json"), "\n") || n < 1 || n > 2 {
			w.Errorf("%d runs a day", n)
		}
	})
}

func lines(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return bytes.Count(text, []byte("\n"))
}

func TestASlotThatFailedIsRunAgainWhereThatIsAskedFor(t *testing.T) {
	w := onSQLite(t)
	if s := w.process("run", "--once-per", "24h", "job", "--", "sh", "-c", "exit 4"); s.status != 4 {
		t.Fatalf("%+v", s)
	}
	contains(t, w.must("jobs"), "failed: exit status 4")
	if s := w.process("run", "--once-per", "24h", "job", "--", "sh", "-c", "exit 5"); s.status != 0 {
		t.Errorf("run again without being asked for: %+v", s)
	}
	if s := w.process("run", "--once-per", "24h", "--retry-failed", "2", "job", "--", "true"); s.status != 0 {
		t.Errorf("%+v", s)
	}
	contains(t, w.must("jobs"), "ok")
}

func TestARunWithinARunOfTheSameNameIsRefused(t *testing.T) {
	eachProcess(t, func(w *world) {
		for _, c := range []struct {
			says   string
			outer  []string
			inner  string
			status int
		}{
			{"the same", []string{"n"}, `exec "$0" run n -- true`, exitFailed},
			{"one of several", []string{"a", "n"}, `exec "$0" run n -- true`, exitFailed},
			{"the same for a while", []string{"n"}, `exec "$0" run --wait 1h n -- true`, exitFailed},
			{"a share", []string{"n"}, `exec "$0" run --shared n -- true`, exitFailed},
			{"shares", []string{"--shared", "n"}, `exec "$0" run --shared n -- true`, 0},
			{"another", []string{"n"}, `exec "$0" run other -- true`, 0},
			{"in another database", []string{"n"}, `exec "$0" run --local n -- true`, 0},
			{"without waiting", []string{"n"}, `exec "$0" run --no-wait -E 75 n -- true`, 75},
		} {
			s := w.process(append(append([]string{"run"}, c.outer...), "--", "sh", "-c", c.inner, os.Args[0])...)
			if s.status != c.status || (c.status == exitFailed) != strings.Contains(s.err, "DBLOCK_NAME") {
				w.Errorf("%s: %+v, want status %d", c.says, s, c.status)
			}
		}
	})
}
