package client

import (
	"errors"

	"github.com/dblock-go/dblock/internal/contract"
)

// The kinds of failure that the client itself finds. Package dblock documents them.
var (
	ErrNotAcquired   = contract.ErrNotAcquired
	ErrLost          = contract.ErrLost
	ErrDeadlock      = contract.ErrDeadlock
	ErrClosed        = contract.ErrClosed
	ErrInvalidOption = contract.ErrInvalidOption

	errNilContext = contract.ErrNilContext
	errUnlocked   = contract.ErrUnlocked
)

var errLostMeanwhile = errors.New("one of the locks was lost while the client waited for others")

// lost returns ErrLost with its reason.
func lost(reason error) error { return contract.Lost(reason) }
