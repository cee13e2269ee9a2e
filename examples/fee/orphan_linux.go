package main

import (
	"runtime"
	"syscall"
)

// diesWithParent makes the kernel kill a server when the program dies: a stopped server would not
// notice that its input has ended.
var diesWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// The kernel treats the thread that started the process as its parent. So the main goroutine starts
// all servers, and stays on the main thread, which lives as long as the program.
func init() { runtime.LockOSThread() }
