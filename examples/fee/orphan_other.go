//go:build !linux

package main

import "syscall"

// diesWithParent does nothing here: the server ends with its input.
var diesWithParent *syscall.SysProcAttr
