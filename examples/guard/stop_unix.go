//go:build unix

package main

import (
	"os"
	"syscall"
)

// suspend stops a process; resume continues it.
func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
