package mysql_test

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (a actor) reenter(ctx context.Context, r protocol.Request) (protocol.Grant, bool, error) {
	result, err := driver.Do(ctx, a, protocol.Reenter{Request: r})
	return result.Grant, result.Done(), err
}

func (a actor) extend(ctx context.Context, h protocol.Held, d time.Duration) (time.Duration, error) {
	result, err := driver.Do(ctx, a, protocol.Extend{Held: h, For: d})
	return result.Grant.Lease, err
}

func (a actor) upgrade(ctx context.Context, h protocol.Held, attempt string) (protocol.Grant, bool, error) {
	result, err := driver.Do(ctx, a, protocol.Upgrade{Held: h, Attempt: attempt})
	return result.Grant, result.Done(), err
}

func (a actor) raise(ctx context.Context, h protocol.Held, attempt string, token int64) (int64, error) {
	result, err := driver.Do(ctx, a, protocol.Raise{Held: h, Attempt: attempt, To: token})
	return result.Grant.Token, err
}

func (a actor) ask(ctx context.Context, name, reason string, e protocol.Event) (int, error) {
	result, err := driver.Do(ctx, a, protocol.Ask{Name: name, Reason: reason, Event: e})
	return result.Holders, err
}

func (a actor) announce(ctx context.Context, h protocol.Held, e protocol.Event) error {
	_, err := a.Run(ctx, protocol.Announce{Held: h, Event: e})
	return err
}
