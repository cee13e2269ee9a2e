package sqlite_test

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// change runs a transition of a name.
func (f *fixture) change(name string, transition func(n *protocol.Name) error) ([]driver.Handoff, error) {
	return f.Change(f.t.Context(), driver.How{Name: name, Wait: true}, transition)
}

func (f *fixture) reenter(ctx context.Context, r driver.Request) (grant driver.Grant, back bool, err error) {
	_, err = f.Change(ctx, driver.How{Name: r.Name, Self: r.Session, Wait: r.Wait}, func(n *protocol.Name) (err error) {
		grant, back, err = protocol.Reenter(n, r)
		return err
	})
	return grant, back && err == nil, err
}

func (f *fixture) downgrade(h driver.Held) ([]driver.Handoff, error) {
	return f.change(h.Name, func(n *protocol.Name) error { return protocol.Downgrade(n, h) })
}

func (f *fixture) announce(h driver.Held, e driver.Event) error {
	_, err := f.change(h.Name, func(n *protocol.Name) error { return protocol.Announce(n, h, e) })
	return err
}
