//go:build unix

package main

import "golang.org/x/sys/unix"

// writable returns why this user may not write a file or folder, and changes nothing.
func writable(path string) error { return unix.Access(path, unix.W_OK) }
