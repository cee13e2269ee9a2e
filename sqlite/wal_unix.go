//go:build unix

package sqlite

import (
	"os"
	"syscall"
)

// links returns the number of names that a file has.
func links(info os.FileInfo) uint64 {
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(of.Nlink)
	}
	return 1
}

// device identifies the file system of a file.
func device(info os.FileInfo) uint64 {
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(of.Dev)
	}
	return 0
}
