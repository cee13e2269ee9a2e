//go:build !linux

package program

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"time"
)

var errNotHere = errors.New("servers are started from local binaries on Linux only")

// Account is that of Linux.
type Account struct{}

// Unprivileged fails.
func Unprivileged(...string) (*Account, error) { return nil, errNotHere }

// Own fails.
func (*Account) Own(string) error { return errNotHere }

// Command is that of package exec.
func (*Account) Command(ctx context.Context, _ string, args []string) *exec.Cmd {
	return exec.CommandContext(ctx, args[0], args[1:]...)
}

// Program is that of Linux, and does not run.
type Program struct {
	As   *Account
	Dir  string
	Args []string
}

// Log is the file that it would have.
func (p *Program) Log() string { return filepath.Join(p.Dir, "log") }

// Ended is nil.
func (*Program) Ended() <-chan struct{} { return nil }

// Start fails.
func (*Program) Start(...string) error { return errNotHere }

// Spent is nothing.
func (*Program) Spent() (user, kernel time.Duration) { return 0, 0 }

// Kill fails.
func (*Program) Kill() error { return errNotHere }

// Pause fails.
func (*Program) Pause() error { return errNotHere }

// Resume fails.
func (*Program) Resume() error { return errNotHere }
