package client

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/wait"
)

// Watch calls changed at first, and then whenever a name may have changed (hinted: it was said so),
// until ctx ends: that is its error; nil: changed has said that it wants no more. It goes on after
// a failover, and calls changed again.
func (c *Client) Watch(ctx context.Context, name string, changed func(hinted bool) (more bool, err error)) error {
	if ctx == nil {
		return errNilContext
	}
	for first := true; ; first = false {
		err := c.watch(ctx, name, changed)
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil && c.store.Transient(err) && (!first || c.store.Begun()): // a failover
			store.Pause(ctx, 100*time.Millisecond)
		default:
			return err
		}
	}
}

// watch does so for as long as one session lives.
func (c *Client) watch(ctx context.Context, name string, changed func(hinted bool) (bool, error)) error {
	id := rand.Text()
	s, w, err := c.beginWatch(ctx, name, id)
	if err != nil {
		return err
	}
	defer c.endWatch(s, w, name, id)
	for {
		if more, err := changed(w.Hinted()); err != nil || !more {
			return err
		}
		select {
		case <-w.News:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.store.Background.Done():
			return ErrClosed
		case <-s.Context().Done():
			return driver.Fail(driver.ErrUnavailable, store.ErrSessionOver)
		}
	}
}

func (c *Client) beginWatch(ctx context.Context, name, id string) (s *store.Session, w *wait.Watcher, err error) {
	if err := c.store.Begin(); err != nil {
		return nil, nil, err
	}
	defer c.store.Done()
	err = c.store.Quickly(ctx, func(ctx context.Context) (err error) {
		if s, err = c.sessions.Open(ctx, true); err != nil {
			return err
		}
		return c.store.Engine.Watch(ctx, s.ID, name, id)
	})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Waiters().Watch(name, id), nil
}

func (c *Client) endWatch(s *store.Session, w *wait.Watcher, name, id string) {
	s.Waiters().Unwatch(w)
	if c.store.Begin() != nil {
		return // a row too many goes with the session
	}
	go func() {
		defer c.store.Done()
		_ = c.store.Call(c.store.Tidying, func(ctx context.Context) error { return c.store.Engine.Unwatch(ctx, name, id) })
	}()
}
