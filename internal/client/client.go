package client

import (
	"cmp"
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/tell"
	"github.com/dblock-go/dblock/reaper"
)

// New makes a client with locks in tables. It does no I/O and starts nothing: the first lock
// does.
func New(engine driver.Backend, config Config) *Client {
	log, logging := tell.Logger(config.Log)
	config.Log = log
	observing := tell.Calls(log, "the observer")
	if config.Observer != nil {
		config.Observer = queued{config.Observer, observing}
	}
	calls := newCalls(config.TTL)
	c := &Client{
		calls: calls, config: config, engine: engine, owners: &owners{host: config.Host}, entries: newEntries(), registry: newRegistry(config.Log),
		history: &history{calls: calls, clock: config.Clock, log: config.Log, report: outage.New(config.Log, "dblock: writing events")},
		telling: []*tell.Queue{observing, logging},
		down:    make(chan struct{}), stuck: make(chan struct{}), undoing: make(chan struct{}, parallelism),
	}
	c.owners.holds = c.registry.enclosing
	c.connections, c.renew = engine.Connections, engine.DropReadOnly
	if config.Events {
		c.history.write = engine.Record
	}
	report := func(what string) *outage.Report { return outage.New(config.Log, "dblock: "+what) }
	c.detaching = report("telling who has a lock")
	c.sessions = &sessions{
		calls: c.calls, engine: engine, host: config.Host, app: config.App, clock: config.Clock, log: config.Log, deadlock: config.Deadlock,
		reconcile: c.reconcile, holding: c.registry.holding, unused: c.registry.empty, unknown: c.unknownGrant, reclaimed: c.history.recordExpired, first: c.serve, lost: c.loseSession, opened: config.Opened,
		opening: make(chan struct{}, 1),
		reports: reports{
			beating: report("the heartbeat"), connecting: report("connecting for heartbeats"), hearing: report("listening for grants"),
			looking: report("looking for grants"), taking: report("taking over from the dead"), deadlocks: report("looking for deadlocks"),
		},
	}
	if config.Observer != nil {
		c.sessions.beaten, c.sessions.listener = config.Observer.Heartbeat, config.Observer.Listener
	}
	return c
}

// serve begins what a client does beside its locks, with its first session.
func (c *Client) serve() {
	if c.history.write != nil {
		c.sessions.running.Go(c.history.run)
	}
	if c.config.Reap {
		c.sessions.running.Go(func() {
			options := []reaper.Option{reaper.Logger(c.config.Log), reaper.While(func() bool { return c.sessions.alive() != nil })}
			if c.config.Events {
				options = append(options, reaper.Events())
			}
			_ = reaper.Run(clock.With(c.background, c.config.Clock), c.engine, append(options, c.config.Reaper...)...)
		})
	}
}

// Close releases what is held, and ends everything. When it returns nil, nothing of the client runs
// any more. If ctx ends first, it stops trying. With one that has ended before, such as that of a
// program which a signal ends, it tries for a few seconds. It returns after contract.CloseTimeout
// and contract.StuckTimeout whatever goes on: a function or a driver that does not end with its
// context.
func (c *Client) Close(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	ctx, cancel := contract.ToUnlock(ctx, c)
	defer cancel()
	if c.calls.close() {
		go c.shutDown()
	}
	select {
	case <-c.down:
	case <-ctx.Done():
		c.abort()
		return context.Cause(ctx)
	case <-c.stuck:
	}
	select {
	case <-c.down:
		return c.failure
	default:
		return contract.ErrStuck
	}
}

// shutDown is what Close waits for. No call begins any more.
func (c *Client) shutDown() {
	defer close(c.down)
	defer c.abort()
	c.stop(ErrClosed)
	defer time.AfterFunc(answerTimeout, c.hangUp).Stop()
	limit := cmp.Or(c.config.Closing, contract.CloseTimeout)
	defer time.AfterFunc(limit, c.abort).Stop()
	defer time.AfterFunc(limit+contract.StuckTimeout, func() { close(c.stuck) }).Stop()
	var holds []*hold
	for _, h := range c.registry.close() {
		if c.drop(h, ErrClosed) {
			holds = append(holds, h)
		}
	}
	c.failure = driver.Join(parallel(len(holds), func(i int) error { return c.takeBack(holds[i], ErrClosed) })...)
	c.underWay.Wait()
	if c.history.write != nil {
		c.history.flush(c.tidying)
	}
	c.failure = driver.Join(c.failure, c.sessions.end())
	c.sessions.wait()
	tell.Flush(c.telling...)
}
