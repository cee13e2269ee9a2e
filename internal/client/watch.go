package client

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/wait"
)

// Watch calls changed at first, and then whenever a name may have changed (hinted: it was said so),
// until ctx ends: that is its error; nil: changed has said that it wants no more. It goes on after
// a failover, and calls changed again.
func (c *Client) Watch(ctx context.Context, name string, changed func(hinted bool) (more bool, err error)) error {
	if ctx == nil {
		return errNilContext
	}
	begun := false
	for first := true; ; first = false {
		err := c.watch(ctx, name, func(hinted bool) (bool, error) {
			more, err := changed(hinted)
			begun = begun || err == nil
			return more, err
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil && transient(err, begun || c.begun()) && (!first || c.begun()): // a failover
			pause(ctx, 100*time.Millisecond)
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
		case <-c.background.Done():
			return ErrClosed
		case <-s.Context().Done():
			return driver.Fail(driver.ErrUnavailable, errSessionOver)
		}
	}
}

func (c *Client) beginWatch(ctx context.Context, name, id string) (s *clientSession, w *wait.Watcher, err error) {
	if err := c.begin(); err != nil {
		return nil, nil, err
	}
	defer c.done()
	err = c.inquire(ctx, func(ctx context.Context) (err error) {
		if s, err = c.sessions.open(ctx); err != nil {
			return err
		}
		return c.engine.Watch(ctx, s.ID, name, id)
	})
	if err != nil {
		return nil, nil, err
	}
	return s, s.hub.Watch(name, id), nil
}

func (c *Client) endWatch(s *clientSession, w *wait.Watcher, name, id string) {
	s.hub.Unwatch(w)
	if c.begin() != nil {
		return // a row too many goes with the session
	}
	go func() {
		defer c.done()
		_ = c.statement(c.tidying, func(ctx context.Context) error { return c.engine.Unwatch(ctx, name, id) })
	}()
}
