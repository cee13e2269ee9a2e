//go:build unix && !linux

package main

import "syscall"

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adopts() bool { return false }
