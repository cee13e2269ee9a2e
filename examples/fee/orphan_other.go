//go:build !linux

package main

import "syscall"

// diesWithParent is left to the end of the server's input.
var diesWithParent *syscall.SysProcAttr
