package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the user that a server runs as. nil: the user that runs the tests.
type account struct{ credential *syscall.Credential }

// unprivileged returns the first of the users that exists, because no server runs as root.
func unprivileged(users []string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range users {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, fmt.Errorf("root may not run a database server, and there is no user %s", strings.Join(users, " or "))
}

// own gives a folder and what is in it to the account.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
	})
}

// command runs args in dir. Programs die with this process, so that a test binary that panics
// leaves no server.
func (a *account) command(ctx context.Context, dir string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	// A process group of its own: ^C is for the tests, which then stop the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if a != nil {
		cmd.SysProcAttr.Credential = a.credential
	}
	return cmd
}

// process is a server's first process and its children.
type process struct {
	as    *account
	dir   string
	args  []string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the first process has ended
}

func (p *process) log() string { return filepath.Join(p.dir, "log") }

func (p *process) start() error {
	// To append, because an earlier process may still write to it.
	out, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	p.cmd, p.ended = p.as.command(context.Background(), p.dir, p.args), make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr = out, out
	started := make(chan error)
	go func() {
		// The signal of a parent's death is sent when the parent's thread ends, so this one must
		// not.
		runtime.LockOSThread()
		defer out.Close()
		defer close(p.ended)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	return <-started
}

// kill stops the first process before it kills the others, so that it can start no more of them.
func (p *process) kill() error {
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := errors.Join(p.halt(), p.signalChildren(syscall.SIGKILL), p.signal(syscall.SIGKILL)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

func (p *process) pause() error {
	return errors.Join(p.halt(), p.signalChildren(syscall.SIGSTOP))
}

// halt returns when the first process has stopped. Until then it may be in a fork: a backend of
// PostgreSQL that nobody knows waits for ever for a lock of a backend that was killed, and keeps
// the shared memory.
func (p *process) halt() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	stat := fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)
	for {
		if state := fields(stat); len(state) == 0 || strings.Contains("TtZX", state[0]) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// fields returns the state of a process, its parent's number and what else its stat has. There are
// none where it has ended.
func fields(stat string) []string {
	text, err := os.ReadFile(stat)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // the name may hold anything
}

func (p *process) resume() error {
	return errors.Join(p.signalChildren(syscall.SIGCONT), p.signal(syscall.SIGCONT))
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// signalChildren reaches the backends of PostgreSQL, which have process groups of their own.
func (p *process) signalChildren(s syscall.Signal) error {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, stat := range stats {
		if of := fields(stat); len(of) < 2 || of[1] != strconv.Itoa(p.cmd.Process.Pid) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
