//go:build unix

package main

import "golang.org/x/sys/unix"

// writable returns the reason why this user may not write a file or folder. It changes nothing.
func writable(path string) error { return unix.Access(path, unix.W_OK) }
