package contract

import "context"

// asking is a context that asks before it answers. A timer ends the context of a lock at its
// deadline, but after a pause of the process, code may look at the context before the timer's
// goroutine has run.
//
// context.Cause calls Err first, and a new context its parent's Done. A context that package
// context has made from this one ends at the same instant, but asks nobody.
type asking struct {
	context.Context        // of context.WithCancelCause
	ask             func() // ends Context if it is time
}

// Asking returns ctx, which calls ask before each answer until it has ended. ask ends ctx if it is
// time. Callers of the context may have locked any mutex, so ask MUST NOT lock one under which such
// a context is used, and MUST NOT call code of the application's.
func Asking(ctx context.Context, ask func()) context.Context { return &asking{ctx, ask} }

func (c *asking) Err() error {
	c.look()
	return c.Context.Err()
}

func (c *asking) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *asking) look() {
	if c.Context.Err() == nil {
		c.ask()
	}
}

// UntilEither returns ctx with a second end: that of other, with its cause. The context asks both
// before it answers, so that it ends by the clock if they do.
func UntilEither(ctx, other context.Context) (context.Context, context.CancelCauseFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	either := Asking(inner, func() {
		for _, c := range []context.Context{ctx, other} {
			if c.Err() != nil {
				cancel(context.Cause(c))
			}
		}
	})
	return either, func(cause error) { stop(); cancel(cause) }
}
