//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// errNoTerminal means that a command in the background waited for a terminal, and that no shell
// could have brought it to the foreground.
var errNoTerminal = errors.New("the command was ended: it needs a terminal, and runs in the background of one, where " +
	"no shell could continue it: redirect its input, such as with </dev/null")

// child is the command with all its children: a process group.
type child struct {
	*exec.Cmd
	terminal int  // the controlling terminal, if there is one
	lent     bool // the terminal was given to the group when this process's group had it
	ended    chan ending
}

// ending is the outcome of a process.
type ending struct {
	syscall.WaitStatus
	err error // the reason why this process has ended it, or nil
}

// code returns the exit status that a shell would report.
func (e ending) code() int {
	if e.Signaled() {
		return 128 + int(e.Signal())
	}
	return e.ExitStatus()
}

// lifeNumber is the lowest number of the descriptor that the command inherits beside its input and
// its output: lower ones may be in use between its caller and the command.
const lifeNumber = 100

// start starts the command in a process group of its own, which gets the terminal if this process
// has it for its input. The command and its children inherit life, which may be nil.
func start(command []string, environment []string, life *os.File) (*child, error) {
	if life != nil {
		fd, err := inherited(life)
		if err != nil {
			return nil, fmt.Errorf("the command cannot inherit the file that keeps its lock: %w", err)
		}
		defer unix.Close(fd)
	}
	p := &child{Cmd: exec.Command(command[0], command[1:]...), ended: make(chan ending, 1)}
	p.Env, p.Stdin, p.Stdout, p.Stderr = environment, os.Stdin, os.Stdout, os.Stderr
	p.SysProcAttr = attributes()
	input := int(os.Stdin.Fd())
	p.terminal, p.lent = input, inForeground(input)
	if terminal, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		p.terminal = terminal
	}
	p.SysProcAttr.Foreground, p.SysProcAttr.Ctty = p.lent, p.terminal
	failed := make(chan error)
	go func() {
		// Linux kills the command with the thread that started it, not with the process.
		runtime.LockOSThread()
		err := p.Start()
		// so that reap can take the terminal back; not inherited by the command
		signal.Ignore(syscall.SIGTTOU)
		failed <- err
		if err == nil {
			p.ended <- p.reap()
		}
	}()
	if err := <-failed; err != nil {
		return nil, notStarted(err)
	}
	return p, nil
}

// inherited duplicates the descriptor of a file for the command.
func inherited(life *os.File) (fd int, err error) {
	file, err := life.SyscallConn()
	if err != nil {
		return 0, err
	}
	closed := file.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD, lifeNumber) })
	return fd, errors.Join(closed, err)
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

// reap waits for the end of the command. Where orphans become children of this process, reap waits
// for them as well: they would stay in the list of processes.
func (p *child) reap() (end ending) {
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
			p.takeBack()
			end.WaitStatus = status
			return end
		case status.Stopped():
			end.err = p.rest(status.StopSignal(), end.err)
		}
	}
}

// rest does for a stopped command what its terminal and its shell do for a job. The shell knows
// only this process: it stops with the command, and continues with it. Where no shell can continue
// this process, rest continues the command at once, as the kernel does with an orphaned process
// group. A command that waits for the terminal there is ended, and rest returns the reason.
func (p *child) rest(stopped syscall.Signal, before error) error {
	waits := stopped == syscall.SIGTTIN || stopped == syscall.SIGTTOU // for the terminal, which another group has
	had := p.takeBack()
	switch {
	case !waits && !had: // by hand: the lock is kept meanwhile
		return nil
	case waits && inForeground(p.terminal): // with its input from elsewhere, or in the background of a script
		p.resume()
		return nil
	case waits && before != nil: // it takes no notice of HUP
		p.kill()
		return before
	case waits && orphaned():
		p.signal(syscall.SIGHUP)
		p.resume()
		return errNoTerminal
	case orphaned(): // PID 1 would not even stop: it would wait, and not notice the command's end
		p.resume()
		return nil
	}
	// The call may return before this process stops.
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGSTOP)
	<-continued
	p.resume()
	return nil
}

// resume continues a stopped command, in the foreground if this process is there.
func (p *child) resume() {
	if inForeground(p.terminal) {
		p.lent = true
		p.foreground(p.Process.Pid)
	}
	p.signal(syscall.SIGCONT)
}

// takeBack takes the terminal back from the command, unless a shell has taken it already.
func (p *child) takeBack() bool {
	group, err := unix.IoctlGetInt(p.terminal, unix.TIOCGPGRP)
	had := p.lent && err == nil && (group == p.Process.Pid || errors.Is(unix.Kill(-group, 0), unix.ESRCH))
	if p.lent = false; had {
		p.foreground(unix.Getpgrp())
	}
	return had
}

// foreground gives the terminal to a process group.
func (p *child) foreground(group int) { _ = unix.IoctlSetPointerInt(p.terminal, unix.TIOCSPGRP, group) }

// orphaned reports whether no shell could continue this process: its process group was started by a
// process of another session. Only Linux tells of a parent's parent.
func orphaned() bool {
	ours, _ := unix.Getsid(0)
	for pid := unix.Getppid(); ; pid = parent(pid) {
		if theirs, err := unix.Getsid(pid); pid == 0 || err != nil || theirs != ours {
			return true
		}
		if group, err := unix.Getpgid(pid); err != nil || group != unix.Getpgrp() || runtime.GOOS != "linux" {
			return false
		}
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

// forward sends signals to the group, until stop is called. It also continues the group for a
// signal that asks it to end: a stopped command would never get the signal.
func (p *child) forward(signals <-chan os.Signal) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case s := <-signals:
				p.signal(s.(syscall.Signal))
				if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 {
					p.signal(syscall.SIGCONT)
				}
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

func (p *child) wait() ending { return <-p.ended }
