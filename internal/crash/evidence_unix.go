//go:build linux || darwin || freebsd

package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

const (
	exclusive = syscall.LOCK_EX // of a process that lives
	shared    = syscall.LOCK_SH // of those that look: they are not in each other's way
)

// open opens a file, or makes it for this user alone. It follows no link.
func open(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|syscall.O_NOFOLLOW, 0o600)
}

// lock locks an open file, without waiting.
func lock(fd, how int) error {
	for {
		if err := syscall.Flock(fd, how|syscall.LOCK_NB); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// unlocked opens a file that no process has locked, and keeps others from locking it for
// themselves. nil where there is none.
func unlocked(path string) *os.File {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	if lock(fd, shared) != nil {
		_ = syscall.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), path)
}

// mine reports whether a file is this user's.
func mine(is fs.FileInfo) bool {
	of, ok := is.Sys().(*syscall.Stat_t)
	return ok && int(of.Uid) == os.Geteuid()
}

var boot = sync.OnceValues(readBoot)

// evidence returns the text that a file must have to be a proof. errors.ErrUnsupported where a file
// like this one proves nothing.
func evidence(file *os.File, session string) (string, error) {
	var is syscall.Stat_t
	var in syscall.Statfs_t
	if err := syscall.Fstat(int(file.Fd()), &is); err != nil {
		return "", err
	}
	if err := syscall.Fstatfs(int(file.Fd()), &in); err != nil {
		return "", err
	}
	switch {
	case !local(&in):
		return "", fmt.Errorf("%w: not a file system of this machine alone", errors.ErrUnsupported)
	case is.Mode&syscall.S_IFMT != syscall.S_IFREG || int(is.Uid) != os.Geteuid() || is.Nlink == 0:
		return "", fmt.Errorf("%w: not a file of this user", errors.ErrUnsupported)
	}
	id, err := boot()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(format, session, id, is.Dev, is.Ino), nil
}
