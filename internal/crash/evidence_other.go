//go:build !linux && !darwin && !freebsd

package crash

import (
	"errors"
	"os"
)

const exclusive, shared = 0, 0

func open(string, int) (*os.File, error) { return nil, errors.ErrUnsupported }

func lock(*os.File, int) error { return errors.ErrUnsupported }

func evidence(*os.File, string) (string, error) { return "", errors.ErrUnsupported }
