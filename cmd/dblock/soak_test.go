//go:build unix

package main

// What takes a TTL, grace periods and heartbeats in real time is no part of the usual run: these
// tests run where DBLOCK_TEST_SOAK is set. TestTheCommandEndsBeforeItsLockDoes has their rule in a
// bubble.

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// soaks skips a test that is for scripts/soak.
func soaks(t *testing.T) {
	t.Helper()
	if os.Getenv("DBLOCK_TEST_SOAK") == "" {
		t.Skip("it takes a TTL in real time: DBLOCK_TEST_SOAK=1 runs it")
	}
}

// The database takes no heartbeat for longer than the TTL.
func TestSoakTheCommandIsDeadBeforeAnotherCanHaveTheLock(t *testing.T) {
	soaks(t)
	w := onSQLite(t)
	const ttl = 4 * time.Second
	w.diesBeforeTheNext(w, []string{"--ttl", ttl.String(), "--grace", (ttl / 2).String()}, func() {
		tx, err := w.db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, require.ErrOf(tx.ExecContext(t.Context(), "BEGIN IMMEDIATE")))
		time.Sleep(ttl + ttl/20) // the lock ends, by the database's clock, whether or not anybody is dead
		require.NoError(t, require.ErrOf(tx.ExecContext(t.Context(), "ROLLBACK")))
		_ = tx.Close()
	})
}

// diesBeforeTheNext runs a command on a host that then loses its lock. The command takes no notice
// of TERM. It must be dead before the one that waits on this host begins.
func (w *world) diesBeforeTheNext(host *world, options []string, lose func()) {
	w.Helper()
	alive := filepath.Join(w.TempDir(), "alive")
	c := host.command(append(append([]string{"run"}, options...), "n", "--", "env", stubborn+"="+alive, os.Args[0])...)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	require.NoError(w, c.Start())
	w.fileWith(alive, "\n")
	next := w.command("run", "n", "--", "date", "+%s%N")
	var began bytes.Buffer
	next.Stdout = &began
	require.NoError(w, next.Start())
	w.queued("n", 1)
	lose()
	_ = c.Wait()
	if c.ProcessState.ExitCode() != 128+int(syscall.SIGKILL) || !strings.Contains(complaint.String(),
		"the lock is lost, or could not be kept") {
		w.Errorf("%v: %s", c.ProcessState, &complaint)
	}
	assert.NoError(w, assert.ErrOf(os.Stat(alive+".term")), "it got no TERM before")
	require.NoError(w, next.Wait())
	last, err := os.ReadFile(alive)
	require.NoError(w, err)
	if was, is := number(w.T, string(last)), number(w.T, began.String()); is <= was {
		w.Errorf("the next began at %d, and the one before lived at %d", is, was)
	}
}

// The host with the command is cut off from the server, for good.
func TestSoakAHostThatIsCutOffStopsItsCommandBeforeAnotherBegins(t *testing.T) {
	soaks(t)
	eachServer(t, func(w *world) {
		far, way := w.through()
		w.diesBeforeTheNext(far, []string{"--ttl", "4s", "--grace", "1s"}, way.Cut)
	})
}

func TestSoakACommandGoesOnWhereTheDatabaseComesBackInTime(t *testing.T) {
	soaks(t)
	eachServer(t, func(w *world) {
		far, way := w.through()
		folder := w.TempDir()
		runs, may := filepath.Join(folder, "runs"), filepath.Join(folder, "may end")
		c := far.command("run", "--ttl", "15s", "--grace", "1s", "n", "--", "sh", "-c",
			`echo >$0; while [ ! -e "$1" ]; do sleep 0.01; done`, runs, may)
		var complaint bytes.Buffer
		c.Stderr = &complaint
		require.NoError(w, c.Start())
		w.fileWith(runs, "\n")
		way.Cut()
		w.until(way.Refused)
		way.Heal()
		// Its next heartbeat comes through.
		until := func() time.Time {
			info, err := inspect.New(w.client).Lock(w.Context(), "n")
			if err != nil || len(info.Holders) != 1 {
				w.Fatalf("%+v, %v", info, err)
			}
			return info.Holders[0].Until
		}
		before := until()
		w.until(func() bool { return until().After(before.Add(time.Second)) })
		require.NoError(w, os.WriteFile(may, nil, 0o600))
		if err := c.Wait(); err != nil {
			w.Errorf("%v: %s", err, &complaint)
		}
		contains(w, w.must("ls"), "No lock is held")
	})
}
