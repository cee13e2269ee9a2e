package dblock

import "github.com/dblock-go/dblock/internal/client"

// The packages of this module reach the core of a client and of a lock through internal/client, so
// that what they alone need is not on the public page.
func init() {
	client.Of = func(c any) *client.Client { return c.(interface{ within() *client.Client }).within() }
	client.LockOf = func(l any) *client.Lock { return l.(interface{ within() *client.Lock }).within() }
}

func (c *Client[TX]) within() *client.Client { return c.core }

func (l *Lock[TX]) within() *client.Lock { return l.core }
