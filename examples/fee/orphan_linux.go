package main

import (
	"runtime"
	"syscall"
)

// diesWithParent has the kernel kill a server when the program dies: one that is stopped would not
// notice that its input has ended.
var diesWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// The kernel takes the thread that started the process for its parent. So all are started by the
// main goroutine, and that stays on the main thread, which lives as long as the program.
func init() { runtime.LockOSThread() }
