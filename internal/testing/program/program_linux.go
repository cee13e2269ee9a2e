package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Account is the user that a program runs as. nil: the user that runs the tests.
type Account struct{ credential *syscall.Credential }

// Unprivileged returns the first of the users that exists, because no server runs as root; nil
// where root does not run the tests.
func Unprivileged(users ...string) (*Account, error) {
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
		return &Account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, fmt.Errorf("root may not run a database server, and there is no user %s", strings.Join(users, " or "))
}

// ID is the number of the account.
func (a *Account) ID() uint32 { return a.credential.Uid }

// Own gives a folder and what is in it to the account.
func (a *Account) Own(dir string) error {
	if a == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(a.credential.Uid), int(a.credential.Gid))
	})
}

// Command runs args in dir. Programs die with this process, so that a test binary that panics
// leaves no server.
func (a *Account) Command(ctx context.Context, dir string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	// A process group of its own: ^C is for the tests, which then stop the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if a != nil {
		cmd.SysProcAttr.Credential = a.credential
	}
	return cmd
}

// Program is a program that is started, paused and killed with all processes that it has started.
type Program struct {
	As    *Account
	Dir   string // in which it runs, and has its log
	Args  []string
	cmd   *exec.Cmd
	ended chan struct{}
}

// Log is the file of what the program says.
func (p *Program) Log() string { return filepath.Join(p.Dir, "log") }

// Ended is closed when the first process has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Start starts it, once more where it has ended, with further arguments of this start.
func (p *Program) Start(further ...string) error {
	// To append, because an earlier process may still write to it.
	out, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	p.cmd, p.ended = p.As.Command(context.Background(), p.Dir, slices.Concat(p.Args, further)), make(chan struct{})
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

// PID is the id of the first process; 0: it has ended, or was never started.
func (p *Program) PID() int {
	if p.cmd == nil || p.cmd.Process == nil {
		return 0
	}
	select {
	case <-p.ended:
		return 0
	default:
		return p.cmd.Process.Pid
	}
}

// ticks is how many ticks of /proc are a second: USER_HZ, which is 100 on every Linux.
const ticks = 100

// Spent is the processor time of the program, and of the processes started by it.
func (p *Program) Spent() (user, kernel time.Duration) {
	pid := p.PID()
	if pid == 0 {
		return 0, 0
	}
	for _, of := range append(Started(pid), pid) {
		stat := fields(fmt.Sprintf("/proc/%d/stat", of))
		if len(stat) < 15 {
			continue
		}
		// The last two are those of children that have ended.
		for i, sum := range []*time.Duration{&user, &kernel, &user, &kernel} {
			n, _ := strconv.Atoi(stat[11+i])
			*sum += time.Duration(n) * time.Second / ticks
		}
	}
	return user, kernel
}

// Kill kills the program.
func (p *Program) Kill() error {
	pid := p.PID()
	if pid == 0 {
		return nil
	}
	if err := Kill(pid); err != nil {
		return err
	}
	<-p.ended
	return nil
}

// Stop asks the program to end, and kills it where it does not within some time.
func (p *Program) Stop(within time.Duration) error {
	pid := p.PID()
	if pid == 0 {
		return nil
	}
	if err := Signal(syscall.SIGTERM, pid); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(within):
		return p.Kill()
	}
}

// Pause stops the program; Resume lets it go on.
func (p *Program) Pause() error { return Pause(p.PID()) }

// Resume lets a paused program go on.
func (p *Program) Resume() error { return Resume(p.PID()) }

// Kill kills a process and all that it has started. It stops the process first, so that it can
// start no more of them.
func Kill(pid int) error {
	return errors.Join(halt(pid), Signal(syscall.SIGKILL, Started(pid)...), Signal(syscall.SIGKILL, pid))
}

// Pause stops a process and all that it has started.
func Pause(pid int) error {
	return errors.Join(halt(pid), Signal(syscall.SIGSTOP, Started(pid)...))
}

// Resume lets a process and all that it has started go on.
func Resume(pid int) error {
	return errors.Join(Signal(syscall.SIGCONT, Started(pid)...), Signal(syscall.SIGCONT, pid))
}

// Signal sends a signal to processes; those that have gone do not mind.
func Signal(s syscall.Signal, pids ...int) error {
	for _, pid := range pids {
		if pid < 2 {
			return fmt.Errorf("no process %d", pid)
		}
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// halt returns when a process has stopped. Until then it may be in a fork: a backend of PostgreSQL
// that nobody knows waits for ever for a lock of a backend that was killed, and keeps the shared
// memory.
func halt(pid int) error {
	if err := Signal(syscall.SIGSTOP, pid); err != nil {
		return err
	}
	stat := fmt.Sprintf("/proc/%d/stat", pid)
	for {
		if state := fields(stat); len(state) == 0 || strings.Contains("TtZX", state[0]) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// Started is what a process has started, and these in turn. The backends of PostgreSQL have process
// groups of their own.
func Started(pid int) (all []int) {
	children := map[string][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		if of := fields(stat); len(of) > 1 {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			children[of[1]] = append(children[of[1]], child)
		}
	}
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		of := children[strconv.Itoa(next[0])]
		all, next = append(all, of...), append(next, of...)
	}
	return all
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
