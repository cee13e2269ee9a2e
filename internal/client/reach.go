package client

import (
	"context"
)

// Inner is part of a *dblock.Client of any type of transactions. By it the other packages of this
// module reach what the client has beyond the public page.
type Inner struct{ core *Client }

// InnerOf makes the inner part of what has a core.
func InnerOf(core *Client) Inner { return Inner{core} }

// Core returns the client without its transactions; nil of a zero value.
func (i Inner) Core() *Client { return i.core }

// ContextOf is the context of what the client holds by an attempt; nil: nothing.
func (c *Client) ContextOf(attempt string) context.Context {
	if h := c.ledger.HeldBy(attempt); h != nil {
		return h.Context()
	}
	return nil
}
