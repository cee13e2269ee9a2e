//go:build linux

package clusters

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// program is what a process runs, so that it can be started anew.
type program struct {
	argv, env []string
	dir       string
	uid, gid  uint32
}

// programOf reads it from /proc.
func programOf(pid int) (p program, err error) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	list := func(name string) []string {
		text, failed := os.ReadFile(filepath.Join(proc, name))
		err = errors.Join(err, failed)
		return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	}
	p = program{argv: list("cmdline"), env: list("environ")}
	dir, failed := os.Readlink(filepath.Join(proc, "cwd"))
	p.dir = dir
	status, unread := os.ReadFile(filepath.Join(proc, "status"))
	for line := range strings.Lines(string(status)) {
		if n, ids := 0, strings.Fields(line); len(ids) > 1 {
			n, _ = strconv.Atoi(ids[1])
			switch ids[0] {
			case "Uid:":
				p.uid = uint32(n)
			case "Gid:":
				p.gid = uint32(n)
			}
		}
	}
	return p, errors.Join(err, failed, unread)
}

// start runs it, without those arguments that are of a first start. It returns when the process is
// there, and says nothing of its fate.
func (p program) start(log string, without ...string) (pid int, err error) {
	out, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	var argv []string
	for _, a := range p.argv {
		drop := false
		for _, w := range without {
			drop = drop || strings.HasPrefix(a, w)
		}
		if !drop {
			argv = append(argv, a)
		}
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Env, c.Dir, c.Stdout, c.Stderr = p.env, p.dir, out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: p.uid, Gid: p.gid}
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	go func() { _ = c.Wait() }()
	return c.Process.Pid, nil
}

// family is a process and all that it has started, itself first.
func family(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], child)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// signal sends a signal to processes; those that have gone do not mind.
func signal(s syscall.Signal, pids ...int) error {
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

// pidIn reads the first line of a file.
func pidIn(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}
