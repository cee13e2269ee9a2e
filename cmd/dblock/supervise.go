package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// errLost means that the command was ended because the lock is lost, or about to be.
var errLost = errors.New("the lock is lost, or could not be kept: the command was ended")

// statusError ends the program with an exit status.
type statusError struct {
	status int
	err    error // nil: nothing is printed
}

func (e statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e statusError) Unwrap() error { return e.err }

// margin returns the time by which the command ends before the lock, which the kernel needs to end
// it.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 50*time.Millisecond), time.Second)
}

// supervise runs the command until it ends, or until the lock does: then it ends the command.
// Earlier signals are for this process, and all later ones for the command: they are received from
// here on, and forwarded once the command has started.
func (h *holding) supervise(ctx context.Context, l hold, command []string) error {
	signals := receive()
	if h.release(); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p, err := start(command, append(os.Environ(), nameVariable+"="+strings.Join(h.names, " "),
		tokenVariable+"="+l.tokens), l.life)
	if err != nil {
		return err
	}
	stop := p.forward(signals)
	defer stop()
	lost := h.endWith(p, l)
	status := p.wait()
	if reason := lost(); reason != nil {
		return statusError{cmp.Or(status.code(), exitFailed), fmt.Errorf("%w: %w", errLost, reason)}
	}
	if status.code() != 0 {
		return statusError{status.code(), status.err}
	}
	return nil
}

// ender is a process that can be ended.
type ender interface {
	terminate()
	kill()
}

// endWith ends the process with the lock. It sends TERM early enough for KILL to follow, after the
// grace, before another client can have the lock. If the lock is lost already, it kills at once.
// The function that endWith returns stops it, and returns the reason if endWith has ended the
// process.
func (h *holding) endWith(p ender, l hold) (lost func() error) {
	over, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			end := l.until().Add(-margin(h.ttl))
			timer := time.NewTimer(time.Until(end.Add(-h.grace)))
			select {
			case <-over:
				timer.Stop()
				done <- nil
				return
			case <-l.Context().Done():
				timer.Stop()
				h.end(p, time.Now().Add(h.grace), over)
				done <- context.Cause(l.Context())
				return
			case reason := <-l.asked:
				timer.Stop()
				complain(h.stderr, fmt.Errorf("another client wants %q: %s", h.names[0], reason))
				continue
			case <-timer.C:
			}
			if later := l.until().Add(-margin(h.ttl)); later.After(end) {
				continue // a heartbeat has come meanwhile
			}
			h.end(p, end, over)
			done <- errors.New("no heartbeat has reached the database")
			return
		}
	}()
	return func() error {
		close(over)
		return <-done
	}
}

// end asks the process to end, and kills it at a time.
func (h *holding) end(p ender, by time.Time, over <-chan struct{}) {
	p.terminate()
	timer := time.NewTimer(time.Until(by))
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	}
	p.kill() // children of the process may still run
}
