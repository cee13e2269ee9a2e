package dblock

import "context"

// Handle is a lock that is held, or was: a *Lock, or one of the server's own locks
// (postgres.Advisory, mysql.Named). Its methods are those of Lock.
type Handle = interface {
	Name() string
	Token() int64 // the fencing token; 0 for the server's own locks, which have none
	Context() context.Context
	Unlock(ctx context.Context) error
}

// Locker takes locks without the type of the application's transactions: for adapters, and for code
// that needs no transaction. Its methods are those of Client. Client.Locker returns one, and so do
// postgres.Advisory and mysql.Named.
type Locker interface {
	Lock(ctx context.Context, name string, options ...LockOption) (Handle, error)
	TryLock(ctx context.Context, name string, options ...LockOption) (Handle, error)
	Do(
		ctx context.Context, name string, fn func(ctx context.Context, l Handle) error, options ...LockOption,
	) error
}

// Locker returns the client's methods that need no transaction. Each Handle that it returns is a
// *Lock. The locks are the client's: Close releases them.
func (c *Client[TX]) Locker() Locker { return locker[TX]{c} }

type locker[TX any] struct{ client *Client[TX] }

func (k locker[TX]) Lock(ctx context.Context, name string, options ...LockOption) (Handle, error) {
	return handleOf(k.client.Lock(ctx, name, options...))
}

func (k locker[TX]) TryLock(ctx context.Context, name string, options ...LockOption) (Handle, error) {
	return handleOf(k.client.TryLock(ctx, name, options...))
}

func (k locker[TX]) Do(
	ctx context.Context, name string, fn func(ctx context.Context, l Handle) error, options ...LockOption,
) error {
	if fn == nil {
		return k.client.Do(ctx, name, nil, options...)
	}
	return k.client.Do(ctx, name, func(ctx context.Context, l *Lock) error { return fn(ctx, l) }, options...)
}

// handleOf keeps a nil *Lock from becoming a Handle that is not nil.
func handleOf(l *Lock, err error) (Handle, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}
