//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/tell"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// victim is a process that writes down when it is ended.
type victim struct {
	began time.Time
	ended []string
}

func (v *victim) terminate() { v.ended = append(v.ended, fmt.Sprint("TERM ", time.Since(v.began))) }
func (v *victim) kill()      { v.ended = append(v.ended, fmt.Sprint("KILL ", time.Since(v.began))) }

// kept is a lock as long as its context.
type kept struct{ ctx context.Context }

func (k kept) Context() context.Context     { return k.ctx }
func (k kept) Unlock(context.Context) error { return nil }

// With a TTL of 10 s the margin is half a second, before which the command is dead.
func TestTheCommandEndsBeforeItsLockDoes(t *testing.T) {
	const never = time.Hour
	broken := errors.New("broken")
	for _, c := range []struct {
		says              string
		heartbeat         time.Duration // gives the lock another 10 s
		broken            time.Duration // takes it away
		commandEnds       time.Duration
		ended             string
		lost, lostBecause bool
	}{
		{"no heartbeat", never, never, 9500 * time.Millisecond, "[TERM 7.5s KILL 9.5s]", true, false},
		{"no heartbeat, and the command ends when it is told to", never, never, 8 * time.Second, "[TERM 7.5s KILL 8s]",
			true, false},
		{"a heartbeat", 7 * time.Second, never, 16500 * time.Millisecond, "[TERM 14.5s KILL 16.5s]", true, false},
		{"taken away", never, 3 * time.Second, 5 * time.Second, "[TERM 3s KILL 5s]", true, true},
		{"the command ends by itself", never, never, time.Second, "[]", false, false},
	} {
		t.Run(c.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				time.AfterFunc(c.broken, func() { cancel(broken) })
				v := &victim{began: time.Now()}
				until := func() time.Time {
					if time.Since(v.began) < c.heartbeat {
						return v.began.Add(10 * time.Second)
					}
					return v.began.Add(c.heartbeat + 10*time.Second)
				}
				h := holding{ttl: 10 * time.Second, grace: 2 * time.Second, stderr: io.Discard}
				lost := h.endWith(v, hold{held: kept{ctx}, until: until})
				time.Sleep(c.commandEnds)
				synctest.Wait()
				err := lost()
				assert.Equal(t, fmt.Sprint(v.ended), c.ended)
				if (err != nil) != c.lost || errors.Is(err, broken) != c.lostBecause {
					t.Error(err)
				}
			})
		})
	}
}

// full is a pipe that nobody reads, until a channel is closed.
type full <-chan struct{}

func (f full) Write(p []byte) (int, error) { <-f; return len(p), nil }

// Broken by a line to standard error that the end of the command waits for.
func TestTheCommandEndsInTimeWhereNobodyReadsWhatRunSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		v := &victim{began: time.Now()}
		asked := make(chan string, 1)
		asked <- "a test"
		h := holding{names: []string{"n"}, ttl: 10 * time.Second, grace: 2 * time.Second,
			stderr: queuedWriter{full(end), tell.New(nil)}}
		lost := h.endWith(v, hold{held: kept{t.Context()}, asked: asked,
			until: func() time.Time { return v.began.Add(10 * time.Second) }})
		time.Sleep(9500 * time.Millisecond)
		synctest.Wait()
		if err := lost(); fmt.Sprint(v.ended) != "[TERM 7.5s KILL 9.5s]" || err == nil {
			t.Error(v.ended, err)
		}
	})
}

func TestNoSignalIsLostWhileTheCommandStarts(t *testing.T) {
	received := receive()
	ctx, cancel := context.WithCancelCause(t.Context())
	file := filepath.Join(t.TempDir(), "ran")
	// it came at the last moment
	h := holding{ttl: time.Hour, stderr: io.Discard, release: func() { cancel(interrupted{syscall.SIGTERM}) }}
	if err := h.supervise(ctx, hold{held: kept{ctx}}, []string{"touch", file}); !errors.Is(err, context.Cause(ctx)) ||
		err == nil {
		t.Error(err)
	}
	assert.Error(t, assert.ErrOf(os.Stat(file)), "the command was run after the signal")

	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	for len(received) == 0 {
		time.Sleep(time.Millisecond)
	}
	p, err := start([]string{"sleep", "600"}, os.Environ(), nil)
	require.NoError(t, err)
	defer p.forward(received)()
	assert.Equal(t, p.wait().code(), 128+int(syscall.SIGUSR1), "the command ended with")
}

func TestASignalThatCameBeforeReleaseHasEndedTheContext(t *testing.T) {
	for range 100 {
		ctx, release := interruptible()
		received := receive() // also tells when it has come
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		<-received
		release()
		if !errors.As(context.Cause(ctx), new(interrupted)) {
			t.Fatal("it has not")
		}
	}
}
