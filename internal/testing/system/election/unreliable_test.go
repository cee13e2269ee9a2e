package election

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
)

// unreliable is an engine that can be away.
type unreliable struct {
	driver.Backend
	away *atomic.Pointer[error]
}

// goAway makes the database fail with an error of this kind.
func (p party) goAway(kind error) {
	err := driver.Fail(kind, errors.New("away"))
	p.away.Store(&err)
}

func (p party) comeBack() { p.away.Store(nil) }

// fail is called before writes.
func (u unreliable) fail() error {
	if err := u.away.Load(); err != nil {
		return *err
	}
	return nil
}

// failRead is called before reads.
func (u unreliable) failRead() error {
	if err := u.fail(); !errors.Is(err, driver.ErrReadOnly) {
		return err
	}
	return nil
}

func (u unreliable) OpenSession(ctx context.Context, s driver.Session) error {
	if err := u.fail(); err != nil {
		return err
	}
	return u.Backend.OpenSession(ctx, s)
}

func (u unreliable) Events(ctx context.Context, f driver.EventFilter, limit int) ([]driver.Event, error) {
	if err := u.failRead(); err != nil {
		return nil, err
	}
	return u.Backend.Events(ctx, f, limit)
}

func (u unreliable) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	if waiters == 0 { // not an observer's
		return u.Backend.Read(ctx, session, names, waiters)
	}
	if err := u.failRead(); err != nil {
		return nil, err
	}
	return u.Backend.Read(ctx, session, names, waiters)
}

func (u unreliable) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Take: u.take}.Run(ctx, u.Backend, ops...)
}

func (u unreliable) take(ctx context.Context, r driver.Request) (driver.Grant, bool, error) {
	if err := u.fail(); err != nil {
		return driver.Grant{}, false, err
	}
	return drivertest.Take(ctx, u.Backend, r)
}

func (u unreliable) Schema(ctx context.Context) (driver.Schema, error) {
	if err := u.failRead(); err != nil {
		return driver.Schema{}, err
	}
	return u.Backend.Schema(ctx)
}

func (u unreliable) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	up, err := u.Backend.Upkeep(ctx, session)
	return unreliableUpkeep{up, u}, err
}

type unreliableUpkeep struct {
	driver.Upkeep
	of unreliable
}

func (u unreliableUpkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	if err := u.of.fail(); err != nil {
		return false, err
	}
	return u.Upkeep.Heartbeat(ctx, session, ttl)
}

func (u unreliable) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	if err := u.fail(); err != nil {
		return false, err
	}
	return u.Backend.Beat(ctx, session, ttl)
}
