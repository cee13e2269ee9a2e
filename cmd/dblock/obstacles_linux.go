package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// SQLite's writer has one of these bytes locked: of the file, or in WAL mode of FILE-shm.
const (
	reservedByte = 0x40000001
	walWriteByte = 120
)

// writers lists the processes that have a SQLite file locked for writing. The file is not opened
// for it: to close it would end the locks that this process has on it.
func writers(file string) (found []obstacle, err error) {
	list, err := os.Open("/proc/locks")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	reserved, walWrite := inode(file), inode(file+"-shm")
	for lines := bufio.NewScanner(list); lines.Scan(); {
		var n, pid, major, minor int64
		var number uint64
		var first int64
		_, err := fmt.Sscanf(lines.Text(), "%d: POSIX ADVISORY WRITE %d %x:%x:%d %d", &n, &pid, &major, &minor, &number, &first)
		if err != nil || (number != reserved || first != reservedByte) && (number != walWrite || first != walWriteByte) {
			continue
		}
		if !slices.ContainsFunc(found, func(o obstacle) bool { return o.PID == pid }) {
			found = append(found, obstacle{PID: pid, From: commandLine(pid), State: "writing, or idle in a transaction"})
		}
	}
	return found, nil
}

// inode is the number that the system has for a file; 0: there is none.
func inode(file string) uint64 {
	var s syscall.Stat_t
	if syscall.Stat(file, &s) != nil {
		return 0
	}
	return s.Ino
}

// commandLine is the command line of a process.
func commandLine(pid int64) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
}
