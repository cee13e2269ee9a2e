//go:build !linux

package dbtest

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
)

// Elsewhere servers come from the environment or from Docker.
var errNotHere = errors.New("servers are started from local binaries on Linux only")

type account struct{}

func unprivileged([]string) (*account, error) { return nil, errNotHere }
func (*account) own(string) error             { return errNotHere }

func (*account) command(ctx context.Context, _ string, args []string) *exec.Cmd {
	return exec.CommandContext(ctx, args[0], args[1:]...)
}

type process struct {
	as    *account
	dir   string
	args  []string
	ended chan struct{}
}

func (p *process) log() string { return filepath.Join(p.dir, "log") }
func (*process) start() error  { return errNotHere }
func (*process) kill() error   { return errNotHere }
func (*process) pause() error  { return errNotHere }
func (*process) resume() error { return errNotHere }
