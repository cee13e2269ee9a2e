package dblockotel

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/observe"
)

const scope = "github.com/dblock-go/dblock/contrib/otel"

const (
	operationKey = attribute.Key("dblock.operation")
	modeKey      = attribute.Key("dblock.lock.mode")
	nameKey      = attribute.Key("dblock.lock.name")
	permitsKey   = attribute.Key("dblock.lock.permits")
	tokenKey     = attribute.Key("dblock.lock.token")
	errorKey     = attribute.Key("error.type") // of OpenTelemetry's semantic conventions
)

// seconds are the bounds of the histograms: a lock is taken within a millisecond, or waited for and
// held for an hour.
var seconds = metric.WithExplicitBucketBoundaries(
	.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)

// Observer makes a span of every requested lock, and the metrics of the package comment. It leaves
// out an instrument that cannot be made, and notifies otel.Handle.
//
// The span is in the context with which the lock is requested, so that the spans of the database's
// driver are below it.
func Observer(options ...Option) observe.Observer {
	o := newObserver(newConfig(options))
	return observe.Observer{
		AcquireStart: o.acquireStart, AcquireEnd: o.acquireEnd, HoldEnd: o.holdEnd, RunEnd: o.runEnd,
		SlotsLeftOut: o.slotsLeftOut,
		Heartbeat:    o.heartbeat, Listener: o.listener,
	}
}

type observer struct {
	config
	tracer         trace.Tracer
	acquires       metric.Float64Histogram
	failures       metric.Int64Counter
	holds          metric.Float64Histogram
	losses         metric.Int64Counter
	runs           metric.Int64Counter
	skipped        metric.Int64Counter
	unasked        metric.Int64Counter
	heartbeats     metric.Float64Histogram
	missed         metric.Int64Counter
	listenerLosses metric.Int64Counter
}

func newObserver(c config) *observer {
	o := &observer{config: c, tracer: c.tracers.Tracer(scope)}
	meter := c.meters.Meter(scope)
	duration := func(into *metric.Float64Histogram, name, description string) {
		made, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), seconds)
		if *into = made; err != nil {
			otel.Handle(err)
			*into = noop.Float64Histogram{}
		}
	}
	count := func(into *metric.Int64Counter, name, unit, description string) {
		made, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		if *into = made; err != nil {
			otel.Handle(err)
			*into = noop.Int64Counter{}
		}
	}
	duration(&o.acquires, "dblock.acquire.duration", "How long locks were asked for.")
	count(&o.failures, "dblock.acquire.failures", "{failure}", "How many requests did not get their lock.")
	duration(&o.holds, "dblock.hold.duration", "How long locks were held.")
	count(&o.losses, "dblock.lock.losses", "{loss}", "How many locks were lost while they were held.")
	count(&o.runs, "dblock.job.runs", "{run}", "How many runs of jobs have ended.")
	count(&o.skipped, "dblock.job.slots.skipped", "{slot}",
		"How many slots of jobs began while an earlier run went on.")
	count(&o.unasked, "dblock.job.slots.missed", "{slot}", "How many slots of jobs no process asked for.")
	duration(&o.heartbeats, "dblock.heartbeat.duration", "How long heartbeats took.")
	count(&o.missed, "dblock.heartbeat.failures", "{failure}", "How many heartbeats failed.")
	count(&o.listenerLosses, "dblock.listener.losses", "{loss}",
		"How often the listener was lost, or could not be made.")
	return o
}

// started is a span with its beginning.
type started struct {
	trace.Span
	began time.Time
}

// acquireStart keeps the span under a key of this observer's own: others may put spans into the
// same context.
func (o *observer) acquireStart(ctx context.Context, a observe.Attempt) context.Context {
	attributes := append(o.of(a), o.attributes...)
	if a.Permits > 0 {
		attributes = append(attributes, permitsKey.Int(a.Permits))
	}
	if o.spanNames {
		attributes = append(attributes, nameKey.String(a.Name))
	}
	began := time.Now()
	ctx, span := o.tracer.Start(ctx, "dblock."+operation(a), trace.WithAttributes(attributes...),
		trace.WithTimestamp(began))
	return context.WithValue(ctx, o, started{span, began})
}

func (o *observer) acquireEnd(ctx context.Context, a observe.Attempt, r observe.AcquireResult) {
	attributes := o.metric(a.Name, r.Err, o.of(a)...)
	o.acquires.Record(ctx, r.Took.Seconds(), attributes)
	if r.Err != nil {
		o.failures.Add(ctx, 1, attributes)
	}
	span, ok := ctx.Value(o).(started)
	if !ok {
		return
	}
	// the client reports it a moment later
	defer span.End(trace.WithTimestamp(span.began.Add(r.Took)))
	if r.Err == nil {
		span.SetAttributes(tokenKey.Int64(r.Token))
		return
	}
	outcome := observe.Outcome(r.Err)
	span.SetAttributes(errorKey.String(outcome))
	if !a.Wait && errors.Is(r.Err, dblock.ErrNotAcquired) {
		return
	}
	description := outcome
	if o.spanNames {
		description = clean(r.Err.Error())
	}
	span.SetStatus(codes.Error, description)
}

func (o *observer) holdEnd(r observe.HoldResult) {
	ctx := context.Background()
	o.holds.Record(ctx, r.Held.Seconds(), o.metric(r.Name, r.Err))
	if observe.Outcome(r.Err) == "lost" {
		o.losses.Add(ctx, 1, o.metric(r.Name, nil))
	}
}

func (o *observer) runEnd(r observe.RunResult) {
	o.runs.Add(context.Background(), 1, o.metric(r.Name, r.Err))
}

func (o *observer) slotsLeftOut(s observe.LeftOut) {
	o.skipped.Add(context.Background(), s.Skipped, o.metric(s.Name, nil))
	o.unasked.Add(context.Background(), s.Missed, o.metric(s.Name, nil))
}

func (o *observer) heartbeat(took time.Duration, err error) {
	ctx := context.Background()
	attributes := metric.WithAttributes(failed(err, o.attributes)...)
	o.heartbeats.Record(ctx, took.Seconds(), attributes)
	if err != nil {
		o.missed.Add(ctx, 1, attributes)
	}
}

func (o *observer) listener(up bool, err error) {
	if !up && !errors.Is(err, dblock.ErrUnsupported) { // otherwise it polls, as configured
		o.listenerLosses.Add(context.Background(), 1, metric.WithAttributes(o.attributes...))
	}
}

// of returns the attributes of a request.
func (o *observer) of(a observe.Attempt) []attribute.KeyValue {
	return []attribute.KeyValue{operationKey.String(operation(a)), modeKey.String(mode(a))}
}

// metric returns the attributes of a metric about a name.
func (o *observer) metric(name string, err error, more ...attribute.KeyValue) metric.MeasurementOption {
	attributes := failed(err, append(more, o.attributes...))
	if o.group != nil {
		attributes = append(attributes, nameKey.String(clean(o.group(name))))
	}
	return metric.WithAttributes(attributes...)
}

// failed adds the class of an error.
func failed(err error, attributes []attribute.KeyValue) []attribute.KeyValue {
	if err == nil {
		return attributes
	}
	return append(attributes[:len(attributes):len(attributes)], errorKey.String(observe.Outcome(err)))
}

// clean makes a text valid UTF-8: for one invalid text an exporter refuses everything it has to
// send.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

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
