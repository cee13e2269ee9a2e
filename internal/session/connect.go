package session

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// connecting is one background connect of a reserved connection.
type connecting struct{ stop context.CancelFunc }

// connect makes a reserved connection in the background, unless one is already being made.
func (h *heart) connect() {
	if h.connecting != nil {
		return
	}
	ctx, stop := context.WithCancel(h.ctx)
	me := &connecting{stop}
	h.connecting = me
	h.work.Go(func() {
		defer stop()
		up := h.reserve(ctx)
		if up != nil && !h.post(func() { h.connected(me, up) }) {
			_ = up.Close()
		}
	})
}

func (h *heart) stopConnecting() {
	if h.connecting != nil {
		h.connecting.stop()
		h.connecting = nil
	}
}

// connected puts a new connection to use.
func (h *heart) connected(by *connecting, up driver.Upkeep) {
	if h.connecting != by { // this connect was cancelled meanwhile
		h.work.Go(func() { _ = up.Close() })
		return
	}
	h.connecting = nil
	l := &reserved{up: up, fresh: h.beats > 0}
	if h.conns[l] = true; h.listensOn(nil) {
		h.listenOn(l)
	}
	h.beatNow()
}

// maxPatience limits how many TTLs a try to connect may take.
const maxPatience = 4

// reserve returns a connection, or nil when ctx ends. Each try may take a TTL, because heartbeats
// do not wait for it. After an interval a second try starts beside the first one. After a failure a
// try may take twice as long as before: a server that is slow to accept connections still does the
// work for cancelled tries, and would get slower with each.
func (h *heart) reserve(ctx context.Context) driver.Upkeep {
	type outcome struct {
		up  driver.Upkeep
		err error
	}
	outcomes := make(chan outcome)
	under, patience := 0, h.config.TTL // the tries in flight, and the limit of the next
	try := func() {
		under++
		limit := patience
		h.work.Go(func() {
			within, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			up, err := h.engine.Upkeep(within, h.ID)
			outcomes <- outcome{up, err}
		})
	}
	defer func() {
		h.work.Go(func() {
			for ; under > 0; under-- {
				if late := <-outcomes; late.err == nil {
					_ = late.up.Close()
				}
			}
		})
	}()
	try()
	slow := time.After(h.interval)
	again := h.config.Clock.NewTimer(h.config.TTL) // runs only after a failure
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-outcomes:
			under--
			if o.err == nil {
				h.config.Connecting.Worked("session", h.ID)
				return o.up
			}
			patience = min(2*patience, maxPatience*h.config.TTL)
			h.failed(h.config.Connecting, o.err)
			if under == 0 {
				again.Reset(h.interval/4 + mathrand.N(h.interval/4))
			}
		case <-again.C:
			again.Stop()
			try()
			slow = time.After(h.interval)
		case <-slow:
			h.failed(h.config.Connecting, fmt.Errorf("no connection within %v: another is tried beside it, and "+
				"heartbeats go over the pool", h.interval))
			if under == 1 {
				try()
			}
		}
	}
}
