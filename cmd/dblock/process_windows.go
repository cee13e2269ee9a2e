package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
)

// child is the command alone: Windows has no process groups that could be signalled.
type child struct{ *exec.Cmd }

// ending is the outcome of a process.
type ending struct {
	status int
	err    error
}

func (e ending) code() int { return e.status }

func start(command []string, environment []string, _ *os.File) (*child, error) {
	p := &child{exec.Command(command[0], command[1:]...)}
	p.Env, p.Stdin, p.Stdout, p.Stderr = environment, os.Stdin, os.Stdout, os.Stderr
	if err := p.Start(); err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return nil, statusError{127, err}
		}
		return nil, statusError{126, err}
	}
	return p, nil
}

// receive takes ^C, so that ^C does not end this process before the command, which gets it from the
// console.
func receive() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	return signals
}

// forward does nothing: the console sends ^C to the command itself.
func (p *child) forward(<-chan os.Signal) (stop func()) { return func() {} }

func (p *child) terminate() { p.kill() }

func (p *child) kill() { _ = p.Process.Kill() }

func (p *child) wait() ending {
	_ = p.Wait()
	return ending{status: p.ProcessState.ExitCode()}
}
