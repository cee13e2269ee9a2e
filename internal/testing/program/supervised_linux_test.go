package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// fake is a program that notes its runs, and ends by itself until it has run so often.
func fake(t *testing.T, ends string) (s *Supervised, runs func() int) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "runs")
	s = Supervise(&Program{Dir: dir, Args: []string{"sh", "-c", `echo "$1" >>runs; test $(wc -l <runs) -gt ` + ends +
		` || exit 1; echo >up; exec sleep 600`, "sh"}}, 0)
	t.Cleanup(func() {
		_ = s.Kill()
		s.watching.Wait()
	})
	return s, func() int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "\n")
	}
}

// up waits until the program has begun to stay.
func up(t *testing.T, s *Supervised) {
	t.Helper()
	file := filepath.Join(s.Dir, "up")
	for limit := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(file); err == nil {
			require.NoError(t, os.Remove(file))
			return
		}
		if time.Now().After(limit) {
			t.Fatal("it does not run")
		}
		<-time.After(time.Millisecond)
	}
}

// Broken by nobody who starts it again, as a node of a cluster that could not join.
func TestAProgramThatEndsByItselfIsStartedAgain(t *testing.T) {
	s, runs := fake(t, "2")
	require.NoError(t, s.Start("with an argument of this start"))
	up(t, s)
	if n := s.Restarts(); n != 2 || runs() != 3 {
		t.Errorf("started again %d times, %d runs, want 2 and 3", n, runs())
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, "runs"))
	if err != nil || string(text) != "with an argument of this start\n\n\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// Broken by a supervisor that knows no intention: a node that is killed shall stay away for a
// while.
func TestAProgramThatWasKilledStaysDownUntilItIsStarted(t *testing.T) {
	s, runs := fake(t, "0")
	want := 0
	for _, end := range []func() error{s.Kill, s.KillAlone, func() error { return s.Stop(time.Minute) }} {
		require.NoError(t, s.Start())
		up(t, s)
		if want++; runs() != want {
			t.Errorf("%d runs, want %d", runs(), want)
		}
		if err := s.Start(); err != nil || s.Restarts() != 0 { // it runs already
			t.Error(err)
		}
		require.NoError(t, end())
		s.watching.Wait()
		if pid := s.PID(); pid != 0 || s.Restarts() != 0 {
			t.Errorf("it runs as %d", pid)
		}
	}
}
