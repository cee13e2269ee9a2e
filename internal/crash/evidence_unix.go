//go:build linux || darwin || freebsd

package crash

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

const (
	exclusive = syscall.LOCK_EX // of a process that lives
	shared    = syscall.LOCK_SH // of those that look: they are not in each other's way
)

// open opens a file, or makes it for this user alone. It follows no link, and waits for no pipe.
func open(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
}

// lock locks a file, without waiting.
func lock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
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
