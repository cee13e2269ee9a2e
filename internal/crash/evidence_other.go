//go:build !linux && !darwin && !freebsd

package crash

import (
	"errors"
	"io/fs"
	"os"
)

const exclusive = 0

func open(string, int) (*os.File, error) { return nil, errors.ErrUnsupported }

func lock(int, int) error { return errors.ErrUnsupported }

func mine(fs.FileInfo) bool { return false }

func unlocked(string) *os.File { return nil }

func evidence(*os.File, string) (string, error) { return "", errors.ErrUnsupported }
