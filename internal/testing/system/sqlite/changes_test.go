package sqlite_test

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (f *fixture) reenter(ctx context.Context, r protocol.Request) (protocol.Grant, bool, error) {
	result, err := driver.Do(ctx, f, protocol.Reenter{Request: r})
	return result.Grant, result.Done(), err
}

func (f *fixture) downgrade(h protocol.Held) ([]protocol.Handoff, error) {
	result, err := driver.Do(f.t.Context(), f, protocol.Downgrade{Held: h})
	return result.Next, err
}

func (f *fixture) announce(h protocol.Held, e protocol.Event) error {
	_, err := f.Run(f.t.Context(), protocol.Announce{Held: h, Event: e})
	return err
}
