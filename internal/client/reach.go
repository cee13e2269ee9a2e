package client

import "context"

// Inner is part of a *dblock.Client and of a *dblock.Lock, of any type of transactions. By it the
// other packages of this module reach what these have beyond the public page.
type Inner[T any] struct{ core *T }

// InnerOf makes the inner part of what has a core.
func InnerOf[T any](core *T) Inner[T] { return Inner[T]{core} }

// Core returns the client or the lock without its transactions; nil of a zero value.
func (i Inner[T]) Core() *T { return i.core }

// ContextOf is the context of what the client holds by an attempt; nil: nothing.
func (c *Client) ContextOf(attempt string) context.Context {
	if h := c.registry.held(attempt); h != nil {
		return h.ctx
	}
	return nil
}
