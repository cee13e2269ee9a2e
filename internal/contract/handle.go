package contract

import "context"

// Handle is a lock that is held, or was.
type Handle interface {
	Name() string
	Context() context.Context
	Unlock(ctx context.Context) error
}
