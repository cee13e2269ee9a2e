package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// SQLite's writer has one of these bytes locked: of the file, or in WAL mode of FILE-shm.
const (
	reservedByte = 0x40000001
	walWriteByte = 120
)

// writers calls add with each process that has a SQLite file locked for writing. It does not open
// the file: closing it would end this process's locks on it.
func writers(file string, add func(process string, o obstacle)) error {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	list, err := os.Open("/proc/locks")
	if err != nil {
		return err
	}
	defer list.Close()
	had := map[int64]bool{}
	for lines := bufio.NewScanner(list); lines.Scan(); {
		var n, pid, major, minor, first, last int64
		var inode uint64
		// EOF: without an end
		_, _ = fmt.Sscanf(lines.Text(), "%d: POSIX ADVISORY WRITE %d %x:%x:%d %d %d", &n, &pid, &major, &minor, &inode,
			&first, &last)
		locked := ""
		switch {
		case first <= reservedByte && reservedByte <= last:
			locked = file
		case first == walWriteByte:
			locked = file + "-shm"
		}
		if locked != "" && !had[pid] && has(pid, locked, inode) {
			had[pid] = true
			add(fmt.Sprint(pid), obstacle{PID: pid, From: commandLine(pid), State: "writing, or idle in a transaction"})
		}
	}
	return nil
}

// has reports whether a process has a file with this inode open, which is unique on one device. For
// a process of another user, the inode must suffice.
func has(pid int64, file string, inode uint64) bool {
	is, err := os.Stat(file)
	if err != nil || is.Sys().(*syscall.Stat_t).Ino != inode {
		return false
	}
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(folder)
	if err != nil {
		return true
	}
	for _, fd := range open {
		if other, err := os.Stat(filepath.Join(folder, fd.Name())); err == nil && os.SameFile(is, other) {
			return true
		}
	}
	return false
}

// commandLine returns the command line of a process.
func commandLine(pid int64) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
}
