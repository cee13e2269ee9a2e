package dblockprom

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/observe"
)

// Observer returns the functions that the client is to call:
// dblock.WithObserver(metrics.Observer()). It is for one client.
func (c *Collector) Observer() observe.Observer {
	return observe.Observer{
		AcquireEnd: c.acquireEnd, HoldEnd: c.holdEnd, RunEnd: c.runEnd, SlotsLeftOut: c.slotsLeftOut,
		Heartbeat: c.heartbeat, Listener: c.listener,
	}
}

func (c *Collector) acquireEnd(_ context.Context, a observe.Attempt, r observe.AcquireResult) {
	outcome := observe.Outcome(r.Err)
	c.acquires.WithLabelValues(c.values(a.Name, operation(a), mode(a), outcome)...).Observe(r.Took.Seconds())
	if r.Err != nil {
		c.failures.WithLabelValues(c.values(a.Name, outcome)...).Inc()
	}
}

func (c *Collector) holdEnd(r observe.HoldResult) {
	outcome := observe.Outcome(r.Err)
	c.holds.WithLabelValues(c.values(r.Name, outcome)...).Observe(r.Held.Seconds())
	if outcome == "lost" {
		c.losses.WithLabelValues(c.values(r.Name)...).Inc()
	}
}

func (c *Collector) runEnd(r observe.RunResult) {
	c.runs.WithLabelValues(c.values(r.Name, observe.Outcome(r.Err))...).Inc()
}

// Reasons why nothing was begun in a slot.
const (
	skipped = "skipped"
	missed  = "missed"
)

func (c *Collector) slotsLeftOut(s observe.LeftOut) {
	c.leftOut.WithLabelValues(c.values(s.Name, skipped)...).Add(float64(s.Skipped))
	c.leftOut.WithLabelValues(c.values(s.Name, missed)...).Add(float64(s.Missed))
}

func (c *Collector) heartbeat(took time.Duration, err error) {
	c.heartbeats.Observe(took.Seconds())
	if err != nil {
		c.missed.Inc()
	}
}

func (c *Collector) listener(up bool, err error) {
	if !up && !errors.Is(err, dblock.ErrUnsupported) { // otherwise it polls, as configured
		c.listenerLosses.Inc()
	}
}

func operation(a observe.Attempt) string {
	switch {
	case a.Candidate:
		return "campaign"
	case a.Wait:
		return "lock"
	}
	return "trylock"
}

func mode(a observe.Attempt) string {
	switch {
	case a.Permits > 0:
		return "permits"
	case a.Shared:
		return "shared"
	}
	return "exclusive"
}
