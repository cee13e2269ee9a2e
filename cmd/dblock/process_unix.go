//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is the command with all its children: a process group.
type child struct {
	*exec.Cmd
	terminal int // the terminal that has the group in its foreground; -1: none
	ended    chan syscall.WaitStatus
}

// ending is the outcome of a process.
type ending struct{ syscall.WaitStatus }

// code returns the exit status that a shell would report.
func (e ending) code() int {
	if e.Signaled() {
		return 128 + int(e.Signal())
	}
	return e.ExitStatus()
}

// start starts the command in a process group of its own, which gets the terminal if this process
// has it.
func start(command []string, environment []string) (*child, error) {
	p := &child{Cmd: exec.Command(command[0], command[1:]...), terminal: -1, ended: make(chan syscall.WaitStatus, 1)}
	p.Env, p.Stdin, p.Stdout, p.Stderr = environment, os.Stdin, os.Stdout, os.Stderr
	p.SysProcAttr = attributes()
	if fd := int(os.Stdin.Fd()); inForeground(fd) {
		p.terminal = fd
		p.SysProcAttr.Foreground, p.SysProcAttr.Ctty = true, fd
	}
	failed := make(chan error)
	go func() {
		// Linux kills the command with the thread that started it, not with the process.
		runtime.LockOSThread()
		err := p.Start()
		failed <- err
		if err == nil {
			p.ended <- p.reap()
		}
	}()
	if err := <-failed; err != nil {
		return nil, notStarted(err)
	}
	// so that it can take the terminal back; not inherited by the command
	signal.Ignore(syscall.SIGTTOU)
	return p, nil
}

// notStarted returns the exit status that a shell reports.
func notStarted(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return statusError{127, err}
	}
	return statusError{126, err}
}

func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// reap waits for the end of the command. If the command is stopped (^Z), this process stops too, so
// that the shell gets the terminal, and continues with the command. Where orphans become children
// of this process, reap waits for them as well: they would stay in the list of processes.
func (p *child) reap() syscall.WaitStatus {
	children := p.Process.Pid
	if adopts() {
		children = -1 // all
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(children, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && pid != p.Process.Pid: // an orphan
		case err != nil || status.Exited() || status.Signaled():
			p.foreground(unix.Getpgrp())
			return status
		case status.Stopped() && p.terminal >= 0:
			p.foreground(unix.Getpgrp())
			_ = syscall.Kill(0, syscall.SIGSTOP)
			p.foreground(p.Process.Pid)
			p.signal(syscall.SIGCONT)
		}
	}
}

// foreground gives the terminal to a process group.
func (p *child) foreground(group int) {
	if p.terminal >= 0 {
		_ = unix.IoctlSetPointerInt(p.terminal, unix.TIOCSPGRP, group)
	}
}

// receive takes the signals that are for the command, until this process ends: once the command has
// ended, no signal may prevent the release of the lock.
func receive() <-chan os.Signal {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2)
	return signals
}

// forward sends signals to the group, until it is stopped.
func (p *child) forward(signals <-chan os.Signal) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case s := <-signals:
				p.signal(s.(syscall.Signal))
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// signal signals the whole group. A stopped command gets the signal when it continues.
func (p *child) signal(s syscall.Signal) { _ = syscall.Kill(-p.Process.Pid, s) }

func (p *child) terminate() {
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT) // a stopped process could not end
}

func (p *child) kill() { p.signal(syscall.SIGKILL) }

func (p *child) wait() ending { return ending{<-p.ended} }
