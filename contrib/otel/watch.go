package dblockotel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/dblock-go/dblock"
)

// Client is the part of a client that Watch uses. Every *dblock.Client is one.
type Client interface {
	Stats() dblock.Stats
}

// Watch adds the gauges of a client. It reads the client's Stats, without I/O, whenever metrics are
// collected. Unregister the result to end it. Several clients in one process each need an attribute
// of their own (WithAttributes). Watch returns ErrInvalidOption if client is nil. After an error
// nothing is watched.
func Watch(client Client, options ...Option) (metric.Registration, error) {
	if client == nil {
		return nil, fmt.Errorf("dblockotel: %w: the client is nil", dblock.ErrInvalidOption)
	}
	c := newConfig(options)
	meter := c.meters.Meter(scope)
	held, heldErr := meter.Int64ObservableUpDownCounter("dblock.held.count",
		metric.WithUnit("{lock}"), metric.WithDescription("How many locks the client holds."))
	waiting, waitingErr := meter.Int64ObservableUpDownCounter("dblock.waiting.count",
		metric.WithUnit("{request}"), metric.WithDescription("How many requests of the client wait for a lock."))
	candidates, candidatesErr := meter.Int64ObservableUpDownCounter("dblock.candidate.count",
		metric.WithUnit("{request}"), metric.WithDescription("How many candidates of elections the client has that "+
			"wait for as long as another leads."))
	oldest, oldestErr := meter.Float64ObservableGauge("dblock.hold.oldest",
		metric.WithUnit("s"), metric.WithDescription("For how long the client has held the oldest lock that is "+
			"without the option Progress."))
	remaining, remainingErr := meter.Float64ObservableGauge("dblock.session.remaining",
		metric.WithUnit("s"), metric.WithDescription("How long the client's session lasts if no heartbeat succeeds "+
			"any more."))
	listening, listeningErr := meter.Int64ObservableUpDownCounter("dblock.listener.count",
		metric.WithUnit("{listener}"), metric.WithDescription("1 while a listener wakes the waiters; 0: the client "+
			"polls, or has not waited yet."))
	dropped, droppedErr := meter.Int64ObservableCounter("dblock.events.dropped",
		metric.WithUnit("{event}"), metric.WithDescription("How many events the client could not write."))
	err := errors.Join(heldErr, waitingErr, candidatesErr, oldestErr, remainingErr, listeningErr, droppedErr)
	if err != nil {
		return nil, fmt.Errorf("dblockotel: %w", err)
	}
	attributes := metric.WithAttributes(c.attributes...)
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := client.Stats()
		o.ObserveInt64(held, int64(s.Held), attributes)
		o.ObserveInt64(waiting, int64(s.Waiting), attributes)
		o.ObserveInt64(candidates, int64(s.Candidates), attributes)
		o.ObserveFloat64(oldest, s.OldestHold.Seconds(), attributes)
		o.ObserveInt64(dropped, s.EventsDropped, attributes)
		if s.Session != "" {
			o.ObserveInt64(listening, oneIf(s.Listening), attributes)
			o.ObserveFloat64(remaining, max(0, time.Until(s.AliveUntil).Seconds()), attributes)
		}
		return nil
	}, held, waiting, candidates, oldest, remaining, listening, dropped)
	if err != nil {
		return nil, fmt.Errorf("dblockotel: %w", err)
	}
	return registration, nil
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
