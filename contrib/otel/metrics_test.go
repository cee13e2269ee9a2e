package dblockotel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/dblock-go/dblock"
	dblockotel "github.com/dblock-go/dblock/contrib/otel"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/observe"
)

var errRefused = &dblock.NotAcquiredError{Host: "elsewhere"}

// attributes is a set of attributes, given as keys and values.
func attributes(pairs ...string) attribute.Set {
	var kvs []attribute.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		kvs = append(kvs, attribute.String(pairs[i], pairs[i+1]))
	}
	return attribute.NewSet(kvs...)
}

// observed is a point of a histogram of one value.
func observed(seconds float64, pairs ...string) metricdata.HistogramDataPoint[float64] {
	bounds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	counts := make([]uint64, len(bounds)+1)
	bucket := 0
	for bucket < len(bounds) && seconds > bounds[bucket] {
		bucket++
	}
	counts[bucket] = 1
	return metricdata.HistogramDataPoint[float64]{
		Attributes: attributes(pairs...), Count: 1, Sum: seconds, Bounds: bounds, BucketCounts: counts,
		Min: metricdata.NewExtrema(seconds), Max: metricdata.NewExtrema(seconds),
	}
}

func histogram(name, description string, points ...metricdata.HistogramDataPoint[float64]) metricdata.Metrics {
	return metricdata.Metrics{Name: name, Description: description, Unit: "s", Data: metricdata.Histogram[float64]{
		Temporality: metricdata.CumulativeTemporality, DataPoints: points,
	}}
}

func counter(name, description, unit string, sets ...attribute.Set) metricdata.Metrics {
	var points []metricdata.DataPoint[int64]
	for _, set := range sets {
		points = append(points, metricdata.DataPoint[int64]{Attributes: set, Value: 1})
	}
	return metricdata.Metrics{Name: name, Description: description, Unit: unit, Data: metricdata.Sum[int64]{
		Temporality: metricdata.CumulativeTemporality, IsMonotonic: true, DataPoints: points,
	}}
}

// everything has an observer called with all that can happen.
func everything(ctx context.Context, o observe.Observer) {
	for _, c := range []struct {
		observe.Attempt
		observe.AcquireResult
	}{
		{observe.Attempt{Name: "a/1", Wait: true}, observe.AcquireResult{Took: 3 * time.Second, Token: 7}},
		{observe.Attempt{Name: "a/2", Shared: true}, observe.AcquireResult{Took: time.Second, Err: errRefused}},
		{observe.Attempt{Name: "b/1", Wait: true, Permits: 2}, observe.AcquireResult{Took: time.Second,
			Err: dblock.ErrUnavailable}},
	} {
		o.AcquireEnd(o.AcquireStart(ctx, c.Attempt), c.Attempt, c.AcquireResult)
	}
	o.HoldEnd(observe.HoldResult{Name: "a/1", Held: time.Minute})
	o.HoldEnd(observe.HoldResult{Name: "b/1", Held: 2 * time.Minute, Err: dblock.ErrLost})
	// as planned
	o.HoldEnd(observe.HoldResult{Name: "b/1", Held: 4 * time.Minute, Err: contract.Lost(contract.ErrLeaseOver)})
	o.HoldEnd(observe.HoldResult{Name: "b/2", Held: 3 * time.Minute, Err: dblock.ErrClosed})
	o.Heartbeat(time.Millisecond, nil)
	o.Heartbeat(time.Second, dblock.ErrUnavailable)
	o.Listener(true, nil)
	o.Listener(false, errors.New("broken"))
	o.Listener(false, dblock.ErrUnsupported) // it polls
}

// same fails unless all metrics but times are these.
func same(t *testing.T, got map[string]metricdata.Metrics, want ...metricdata.Metrics) {
	t.Helper()
	for _, m := range want {
		metricdatatest.AssertEqual(t, m, got[m.Name], metricdatatest.IgnoreTimestamp(),
			metricdatatest.IgnoreExemplars())
		delete(got, m.Name)
	}
	for name := range got {
		t.Errorf("and also %s", name)
	}
}

func TestACandidateIsToldApartFromWaiters(t *testing.T) {
	sdk := newTelemetry(t)
	o := dblockotel.Observer(sdk.with()...)
	a := observe.Attempt{Name: "n", Wait: true, Candidate: true}
	o.AcquireEnd(o.AcquireStart(t.Context(), a), a, observe.AcquireResult{Took: time.Hour})
	same(t, sdk.collect(), histogram("dblock.acquire.duration", "How long locks were asked for.",
		observed(3600, "dblock.operation", "campaign", "dblock.lock.mode", "exclusive")))
}

func TestWhatAClientDoesIsMeasured(t *testing.T) {
	const operation, mode, failure = "dblock.operation", "dblock.lock.mode", "error.type"
	sdk := newTelemetry(t)
	everything(t.Context(), dblockotel.Observer(sdk.with()...))
	same(t, sdk.collect(),
		histogram("dblock.acquire.duration", "How long locks were asked for.",
			observed(3, operation, "lock", mode, "exclusive"),
			observed(1, operation, "trylock", mode, "shared", failure, "refused"),
			observed(1, operation, "lock", mode, "permits", failure, "unavailable")),
		counter("dblock.acquire.failures", "How many requests did not get their lock.", "{failure}",
			attributes(operation, "trylock", mode, "shared", failure, "refused"),
			attributes(operation, "lock", mode, "permits", failure, "unavailable")),
		histogram("dblock.hold.duration", "How long locks were held.",
			observed(60), observed(120, failure, "lost"), observed(240, failure, "expired"),
			observed(180, failure, "closed")),
		counter("dblock.lock.losses", "How many locks were lost while they were held.", "{loss}", attributes()),
		histogram("dblock.heartbeat.duration", "How long heartbeats took.",
			observed(.001), observed(1, failure, "unavailable")),
		counter("dblock.heartbeat.failures", "How many heartbeats failed.", "{failure}",
			attributes(failure, "unavailable")),
		counter("dblock.listener.losses", "How often the listener was lost, or could not be made.", "{loss}",
			attributes()),
	)
}

func TestAttributesAndNamesAreAddedWhereTheyAreAskedFor(t *testing.T) {
	const operation, mode, name, failure, app = "dblock.operation", "dblock.lock.mode", "dblock.lock.name",
		"error.type", "app"
	sdk := newTelemetry(t)
	group := func(name string) string {
		if first, _, _ := strings.Cut(name, "/"); first == "a" {
			return first
		}
		return "\xff" // not UTF-8
	}
	everything(t.Context(), dblockotel.Observer(
		sdk.with(nil, dblockotel.WithNamesInMetrics(group), dblockotel.WithAttributes(attribute.String(app, "x")))...))
	same(t, sdk.collect(),
		histogram("dblock.acquire.duration", "How long locks were asked for.",
			observed(3, operation, "lock", mode, "exclusive", name, "a", app, "x"),
			observed(1, operation, "trylock", mode, "shared", failure, "refused", name, "a", app, "x"),
			observed(1, operation, "lock", mode, "permits", failure, "unavailable", name, "\uFFFD", app, "x")),
		counter("dblock.acquire.failures", "How many requests did not get their lock.", "{failure}",
			attributes(operation, "trylock", mode, "shared", failure, "refused", name, "a", app, "x"),
			attributes(operation, "lock", mode, "permits", failure, "unavailable", name, "\uFFFD", app, "x")),
		histogram("dblock.hold.duration", "How long locks were held.",
			observed(60, name, "a", app, "x"), observed(120, failure, "lost", name, "\uFFFD", app, "x"),
			observed(240, failure, "expired", name, "\uFFFD", app, "x"), observed(180, failure, "closed", name,
				"\uFFFD", app, "x")),
		counter("dblock.lock.losses", "How many locks were lost while they were held.", "{loss}",
			attributes(name, "\uFFFD", app, "x")),
		histogram("dblock.heartbeat.duration", "How long heartbeats took.",
			observed(.001, app, "x"), observed(1, failure, "unavailable", app, "x")),
		counter("dblock.heartbeat.failures", "How many heartbeats failed.", "{failure}",
			attributes(failure, "unavailable", app, "x")),
		counter("dblock.listener.losses", "How often the listener was lost, or could not be made.", "{loss}",
			attributes(app, "x")),
	)
}

// A Lock that its context ended is measured like any other.
func TestWhatEndsWithItsContextIsMeasured(t *testing.T) {
	sdk := newTelemetry(t)
	o := dblockotel.Observer(sdk.with()...)
	a := observe.Attempt{Name: "n", Wait: true}
	ctx, cancel := context.WithCancel(t.Context())
	ctx = o.AcquireStart(ctx, a)
	cancel()
	o.AcquireEnd(ctx, a, observe.AcquireResult{Took: time.Second, Err: &dblock.NotAcquiredError{Cause: ctx.Err()}})
	same(t, sdk.collect(),
		histogram("dblock.acquire.duration", "How long locks were asked for.",
			observed(1, "dblock.operation", "lock", "dblock.lock.mode", "exclusive", "error.type", "canceled")),
		counter("dblock.acquire.failures", "How many requests did not get their lock.", "{failure}",
			attributes("dblock.operation", "lock", "dblock.lock.mode", "exclusive", "error.type", "canceled")),
	)
	if ended := sdk.spans.Ended(); len(ended) != 1 || ended[0].Status().Description != "canceled" {
		t.Errorf("spans %v", ended)
	}
}

func TestRunsOfJobsAreCounted(t *testing.T) {
	const failure = "error.type"
	sdk := newTelemetry(t)
	o := dblockotel.Observer(sdk.with()...)
	o.RunEnd(observe.RunResult{Name: "j"})
	o.RunEnd(observe.RunResult{Name: "j", Err: errors.New("broken")})
	o.SlotsLeftOut(observe.LeftOut{Name: "j", Skipped: 1, Missed: 1})
	same(t, sdk.collect(),
		counter("dblock.job.runs", "How many runs of jobs have ended.", "{run}", attributes(),
			attributes(failure, "failed")),
		counter("dblock.job.slots.skipped", "How many slots of jobs began while an earlier run went on.", "{slot}",
			attributes()),
		counter("dblock.job.slots.missed", "How many slots of jobs no process asked for.", "{slot}", attributes()),
	)
}
