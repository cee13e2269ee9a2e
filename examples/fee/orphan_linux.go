package main

import (
	"runtime"
	"syscall"
)

// diesWithParent makes the kernel kill a server when the program dies: a stopped server would not
// notice that its input has ended.
var diesWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// init keeps the main goroutine, which starts all servers, on the main thread, which lives as long
// as the program: the kernel treats the thread that started a process as its parent.
func init() { runtime.LockOSThread() }
