package mysql_test

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// change runs a transition of a name that a session asks for.
func (a actor) change(ctx context.Context, name string, transition func(n *protocol.Name) error) ([]driver.Handoff, error) {
	return a.Change(ctx, driver.How{Name: name, Self: a.session, Wait: true}, transition)
}

func (a actor) reenter(ctx context.Context, r driver.Request) (grant driver.Grant, back bool, err error) {
	_, err = a.change(ctx, r.Name, func(n *protocol.Name) (err error) {
		grant, back, err = protocol.Reenter(n, r)
		return err
	})
	return grant, back && err == nil, err
}

func (a actor) extend(ctx context.Context, h driver.Held, d time.Duration) (left time.Duration, err error) {
	_, err = a.change(ctx, h.Name, func(n *protocol.Name) (err error) {
		left, err = protocol.Extend(n, h, d)
		return err
	})
	return left, err
}

func (a actor) upgrade(ctx context.Context, h driver.Held, attempt string) (grant driver.Grant, up bool, err error) {
	_, err = a.change(ctx, h.Name, func(n *protocol.Name) (err error) {
		grant, up, err = protocol.Upgrade(n, h, attempt)
		return err
	})
	return grant, up && err == nil, err
}

func (a actor) raise(ctx context.Context, h driver.Held, token int64) (raised int64, err error) {
	_, err = a.change(ctx, h.Name, func(n *protocol.Name) (err error) {
		raised, err = protocol.Raise(n, h, token)
		return err
	})
	return raised, err
}

func (a actor) ask(ctx context.Context, name, reason string, e driver.Event) (holders int, err error) {
	_, err = a.change(ctx, name, func(n *protocol.Name) (err error) {
		holders, err = protocol.Ask(n, reason, e)
		return err
	})
	return holders, err
}

func (a actor) announce(ctx context.Context, h driver.Held, e driver.Event) error {
	_, err := a.change(ctx, h.Name, func(n *protocol.Name) error { return protocol.Announce(n, h, e) })
	return err
}
