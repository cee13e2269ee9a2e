//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// program is the built program.
var program string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	folder, err := os.MkdirTemp("", "fee-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	program = filepath.Join(folder, "fee.exe")
	args := []string{"build", "-o", program, "."}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race",
		Value: "true"}) {
		args = slices.Insert(args, 1, "-race")
	}
	if output, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, output)
		return 1
	}
	return dbtest.Run(m)
}

var testTTL = dbtest.Scale(2 * time.Second)

const (
	testRounds = 60
	fewRounds  = "-rounds=60"
	// runTimeout is far beyond what any run takes.
	runTimeout = 2 * time.Minute
)

// outcome is what a run printed, and how it ended.
type outcome struct {
	stdout, stderr string
	status         int
}

// finish runs the program to its end, which must leave nothing behind in the folder for temporary
// files. With -v the servers have the program's standard error, so that its end is the end of the
// last of them too.
func finish(t *testing.T, args ...string) outcome {
	t.Helper()
	r := begin(t, args...)
	return r.wait(t, runTimeout)
}

// running is a program that runs.
type running struct {
	cmd    *exec.Cmd
	stdout watched
	stderr bytes.Buffer
	folder string
	ended  chan struct{}
}

func begin(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{folder: t.TempDir(), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	r.cmd = exec.CommandContext(ctx, program, append([]string{"-v", "-ttl=" + testTTL.String()}, args...)...)
	r.cmd.Env = append(os.Environ(), "TMPDIR="+r.folder)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	require.NoError(t, r.cmd.Start())
	go func() {
		_ = r.cmd.Wait() // of every way to end, the status tells
		cancel()
		close(r.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	return r
}

// wait returns when the program and its servers have ended.
func (r *running) wait(t *testing.T, timeout time.Duration) outcome {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(timeout):
		t.Fatalf("it has not ended after %v:\n%s", timeout, r.stdout.String())
	}
	return outcome{r.stdout.String(), r.stderr.String(), r.cmd.ProcessState.ExitCode()}
}

// watched is what a program has printed so far.
type watched struct {
	mu   sync.Mutex // protects text and news
	text bytes.Buffer
	news chan struct{} // closed with the next output
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.news != nil {
		close(w.news)
		w.news = nil
	}
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await returns when the output contains a text.
func (r *running) await(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(runTimeout)
	for {
		r.stdout.mu.Lock()
		found := strings.Contains(r.stdout.text.String(), text)
		if r.stdout.news == nil {
			r.stdout.news = make(chan struct{})
		}
		news := r.stdout.news
		r.stdout.mu.Unlock()
		if found {
			return
		}
		select {
		case <-news:
		case <-r.ended:
			t.Fatalf("it ended without %q:\n%s%s", text, r.stdout.String(), r.stderr.String())
		case <-timeout:
			t.Fatalf("no %q after %v:\n%s", text, runTimeout, r.stdout.String())
		}
	}
}

// interrupt ends a run with Ctrl-C.
func interrupt(t *testing.T, r *running) {
	t.Helper()
	require.NoError(t, r.cmd.Process.Signal(os.Interrupt))
	if o := r.wait(t, cleanupTimeout+endTimeout); o.status != 130 {
		t.Errorf("exit status %d:\n%s%s", o.status, o.stdout, o.stderr)
	}
}
