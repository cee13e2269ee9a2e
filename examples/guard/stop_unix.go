//go:build unix

package main

import (
	"os"
	"syscall"
)

// suspend stops a process where it is; resume lets it go on.
func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
