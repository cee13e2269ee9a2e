package fakedb

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Hooked is an engine whose calls that reach the database go through a hook.
func Hooked(b driver.Backend, hook Hook) driver.Backend { return hooked{b, hook} }

type hooked struct {
	driver.Backend
	hook Hook
}

// get has a call go through a hook, and returns its answer where the hook returns no error.
func get[A any](
	ctx context.Context, hook Hook, c Call, do func(ctx context.Context, c *Call) (A, error),
) (answer A, err error) {
	var got A
	c.do = func(ctx context.Context, c *Call) (err error) {
		got, err = do(ctx, c)
		return err
	}
	if err := hook(ctx, &c); err != nil {
		return answer, err
	}
	return got, nil
}

// list is get with the number of rows.
func list[A any](
	ctx context.Context, hook Hook, c Call, do func(ctx context.Context) ([]A, error),
) ([]A, error) {
	return get(ctx, hook, c, func(ctx context.Context, c *Call) ([]A, error) {
		rows, err := do(ctx)
		c.Rows = len(rows)
		return rows, err
	})
}

// run is get without an answer.
func run(ctx context.Context, hook Hook, c Call, do func(ctx context.Context) error) error {
	c.do = func(ctx context.Context, _ *Call) error { return do(ctx) }
	return hook(ctx, &c)
}

func (h hooked) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	c := Call{Engine: h.Backend, Method: "Run", Ops: ops, do: func(ctx context.Context, c *Call) (err error) {
		c.Results, err = h.Backend.Run(ctx, c.Ops...)
		return err
	}}
	if len(ops) > 0 {
		c.Session = ops[0].By()
	}
	if err := h.hook(ctx, &c); err != nil {
		return nil, err
	}
	return c.Results, nil
}

func (h hooked) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	c := Call{Method: "Read", Session: session, Waiters: waiters, do: func(ctx context.Context, c *Call) (err error) {
		c.States, err = h.Backend.Read(ctx, session, names, waiters)
		c.Rows = len(c.States)
		return err
	}}
	if err := h.hook(ctx, &c); err != nil {
		return nil, err
	}
	return c.States, nil
}

func (h hooked) Schema(ctx context.Context) (driver.Schema, error) {
	return get(ctx, h.hook, Call{Method: "Schema"}, func(ctx context.Context, _ *Call) (driver.Schema, error) {
		return h.Backend.Schema(ctx)
	})
}

func (h hooked) OpenSession(ctx context.Context, s driver.Session) error {
	return run(ctx, h.hook, Call{Method: "OpenSession", Session: s.ID}, func(ctx context.Context) error {
		return h.Backend.OpenSession(ctx, s)
	})
}

func (h hooked) EndSession(ctx context.Context, session string, empty bool) error {
	return run(ctx, h.hook, Call{Method: "EndSession", Session: session}, func(ctx context.Context) error {
		return h.Backend.EndSession(ctx, session, empty)
	})
}

func (h hooked) Bury(ctx context.Context, session, by, because string) (driver.Burial, error) {
	c := Call{Method: "Bury", Session: session}
	return get(ctx, h.hook, c, func(ctx context.Context, _ *Call) (driver.Burial, error) {
		return h.Backend.Bury(ctx, session, by, because)
	})
}

func (h hooked) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return beat(ctx, h.hook, Call{Method: "Beat", Session: session}, ttl, h.Backend.Beat)
}

func beat(
	ctx context.Context, hook Hook, c Call, ttl time.Duration,
	do func(ctx context.Context, session string, ttl time.Duration) (bool, error),
) (bool, error) {
	c.do = func(ctx context.Context, c *Call) (err error) {
		c.Alive, err = do(ctx, c.Session, ttl)
		return err
	}
	err := hook(ctx, &c)
	return c.Alive && err == nil, err
}

func (h hooked) OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return run(ctx, h.hook, Call{Method: "OnSideConn"}, func(ctx context.Context) error {
		return h.Backend.OnSideConn(ctx, do)
	})
}

func (h hooked) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	c := Call{Method: "Upkeep", Session: session}
	return get(ctx, h.hook, c, func(ctx context.Context, _ *Call) (driver.Upkeep, error) {
		up, err := h.Backend.Upkeep(ctx, session)
		if err != nil {
			return nil, err
		}
		return upkeep{up, h.hook}, nil
	})
}

// upkeep is a reserved connection of a hooked engine.
type upkeep struct {
	driver.Upkeep
	hook Hook
}

func (u upkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return beat(ctx, u.hook, Call{Method: "Heartbeat", Session: session}, ttl, u.Upkeep.Heartbeat)
}

func (u upkeep) Listen(ctx context.Context, session string, ready func(), wake func(protocol.Hint)) error {
	c := Call{Method: "Listen", Session: session, do: func(ctx context.Context, c *Call) error {
		return u.Upkeep.Listen(ctx, session, func() {
			if c.Ready != nil {
				c.Ready()
			}
			ready()
		}, func(h protocol.Hint) {
			if c.Hear != nil {
				h = c.Hear(h)
			}
			wake(h)
		})
	}}
	return u.hook(ctx, &c)
}

func (u upkeep) Claims(ctx context.Context, session string, known []driver.Claim) ([]driver.Claim, error) {
	c := Call{Method: "Upkeep.Claims", Session: session}
	return list(ctx, u.hook, c, func(ctx context.Context) ([]driver.Claim, error) {
		return u.Upkeep.Claims(ctx, session, known)
	})
}

func (h hooked) Claims(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	c := Call{Method: "Claims", Session: session}
	return list(ctx, h.hook, c, func(ctx context.Context) ([]driver.Claim, error) {
		return h.Backend.Claims(ctx, session, limit)
	})
}

func (h hooked) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	return list(ctx, h.hook, Call{Method: "Names"}, func(ctx context.Context) ([]string, error) {
		return h.Backend.Names(ctx, f, limit)
	})
}

func (h hooked) Sessions(
	ctx context.Context, f driver.SessionFilter, after string, limit int,
) ([]driver.SessionDetail, error) {
	return list(ctx, h.hook, Call{Method: "Sessions"}, func(ctx context.Context) ([]driver.SessionDetail, error) {
		return h.Backend.Sessions(ctx, f, after, limit)
	})
}

func (h hooked) WaitGraph(ctx context.Context, from []driver.Waiting) ([]driver.Wait, error) {
	c := Call{Method: "WaitGraph", do: func(ctx context.Context, c *Call) (err error) {
		c.Waits, err = h.Backend.WaitGraph(ctx, from)
		return err
	}}
	if err := h.hook(ctx, &c); err != nil {
		return nil, err
	}
	return c.Waits, nil
}

func (h hooked) Record(ctx context.Context, events []protocol.Event) error {
	return run(ctx, h.hook, Call{Method: "Record"}, func(ctx context.Context) error {
		return h.Backend.Record(ctx, events)
	})
}

func (h hooked) Events(ctx context.Context, f driver.EventFilter, limit int) ([]protocol.Event, error) {
	return list(ctx, h.hook, Call{Method: "Events"}, func(ctx context.Context) ([]protocol.Event, error) {
		return h.Backend.Events(ctx, f, limit)
	})
}

func (h hooked) Runs(ctx context.Context, f driver.RunFilter, limit int) ([]driver.Run, error) {
	return list(ctx, h.hook, Call{Method: "Runs"}, func(ctx context.Context) ([]driver.Run, error) {
		return h.Backend.Runs(ctx, f, limit)
	})
}

func (h hooked) BeginRun(
	ctx context.Context, r driver.Run, slot driver.Slot, retry driver.Retry,
) (begun driver.Run, ours bool, err error) {
	err = run(ctx, h.hook, Call{Method: "BeginRun", Session: r.Session}, func(ctx context.Context) (err error) {
		begun, ours, err = h.Backend.BeginRun(ctx, r, slot, retry)
		return err
	})
	return begun, ours && err == nil, err
}

func (h hooked) EndRun(ctx context.Context, r driver.Run) error {
	return run(ctx, h.hook, Call{Method: "EndRun", Session: r.Session}, func(ctx context.Context) error {
		return h.Backend.EndRun(ctx, r)
	})
}
