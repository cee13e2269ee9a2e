package client

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/coalesce"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/reaper"
)

// New makes a client with locks in tables. It does no I/O and starts nothing: the first lock
// does.
func New(engine driver.Backend, config Config) *Client {
	c := newClient(config)
	c.connections, c.renew = engine.Connections, engine.DropReadOnly
	t := &tables{Client: c, engine: engine}
	c.backing = t
	if config.Events {
		c.history.write = engine.Record
	}
	t.undos = coalesce.New(coalesce.Config[undo, error]{Run: t.leaveTogether, Most: math.MaxInt, Go: c.underWay.Go})
	report := func(what string) *outage.Report { return outage.New(config.Log, "dblock: "+what) }
	t.settling = report("telling who has a lock")
	t.sessions = &sessions{
		calls: c.calls, engine: engine, host: config.Host, app: config.App, clock: config.Clock, log: config.Log, deadlock: config.Deadlock,
		reconcile: t.reconcile, holding: c.registry.holding, stray: t.stray, reclaimed: c.history.recordExpired, first: t.serve, settle: t.settleRun, lost: c.loseAll, opened: config.Opened,
		opening: make(chan struct{}, 1),
		reports: reports{
			beating: report("the heartbeat"), connecting: report("connecting for heartbeats"), hearing: report("listening for grants"),
			looking: report("looking for grants"), taking: report("taking over from the dead"), deadlocks: report("looking for deadlocks"),
		},
	}
	if config.Observer != nil {
		t.sessions.beaten, t.sessions.listener = config.Observer.Heartbeat, config.Observer.Listener
	}
	return c
}

// NewNative makes a client with the server's own locks.
func NewNative(keeper Keeper, config Config) *Client {
	c := newClient(config)
	c.backing = native{c, keeper, new(atomic.Int64)}
	return c
}

func newClient(config Config) *Client {
	calls := newCalls(config.TTL)
	return &Client{
		calls: calls, config: config, owners: &owners{config.Host}, entries: newEntries(), registry: newRegistry(),
		history: &history{calls: calls, clock: config.Clock, log: config.Log, report: outage.New(config.Log, "dblock: writing events")},
		down:    make(chan struct{}),
	}
}

// serve begins what a client does beside its locks, with its first session.
func (t *tables) serve() {
	if t.history.write != nil {
		t.sessions.running.Go(t.history.run)
	}
	if t.config.Reap {
		t.sessions.running.Go(func() {
			options := []reaper.Option{reaper.Logger(t.config.Log)}
			if t.config.Events {
				options = append(options, reaper.Events())
			}
			_ = reaper.Run(clock.With(t.background, t.config.Clock), t.engine, append(options, t.config.Reaper...)...)
		})
	}
}

// Close releases what is held, and ends everything. When it returns nil, nothing of the client runs
// any more. If ctx ends first, it stops trying.
func (c *Client) Close(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if c.calls.close() {
		go c.shutDown()
	}
	select {
	case <-c.down:
		return c.failure
	case <-ctx.Done():
		c.abort()
		return context.Cause(ctx)
	}
}

// shutDown is what Close waits for. No call begins any more.
func (c *Client) shutDown() {
	defer close(c.down)
	defer c.abort()
	c.stop(ErrClosed)
	defer time.AfterFunc(answerTimeout, c.hangUp).Stop()
	holds := c.registry.close()
	c.failure = driver.Join(parallel(len(holds), func(i int) error { return c.giveUp(holds[i]) })...)
	c.underWay.Wait()
	if c.history.write != nil {
		c.history.flush(c.tidying)
	}
	c.failure = driver.Join(c.failure, c.backing.close())
}

// close ends the session, and waits until nothing of it runs any more.
func (t *tables) close() error {
	defer t.sessions.wait()
	return t.sessions.end()
}
