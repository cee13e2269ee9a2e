package contract

import "context"

// Handle is dblock.Handle. It is an alias in both packages, so that the public page shows its
// methods.
type Handle = interface {
	Name() string
	Token() int64
	Context() context.Context
	Unlock(ctx context.Context) error
}
