package dblockotel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/dblock-go/dblock"
	dblockotel "github.com/dblock-go/dblock/contrib/otel"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

// text is a span in one line: its name, attributes, status.
func text(s trace.ReadOnlySpan) string {
	var parts []string
	for _, kv := range s.Attributes() {
		parts = append(parts, string(kv.Key)+"="+kv.Value.String())
	}
	slices.Sort(parts)
	return strings.Join(append([]string{s.Name()}, append(parts, s.Status().Code.String(), s.Status().Description)...),
		" ")
}

func TestARequestIsASpan(t *testing.T) {
	refused := &dblock.LockError{Op: "lock", Name: "n", Err: errRefused}
	app := dblockotel.WithAttributes(attribute.String("app", "x"))
	for _, c := range []struct {
		name    string
		options []dblockotel.Option
		attempt observe.Attempt
		result  observe.AcquireResult
		want    string
	}{
		{
			"a lock that is granted", nil,
			observe.Attempt{Name: "n", Wait: true}, observe.AcquireResult{Token: 7},
			"dblock.lock dblock.lock.mode=exclusive dblock.lock.token=7 dblock.operation=lock Unset ",
		},
		{
			"a lock that is not", nil,
			observe.Attempt{Name: "n", Wait: true, Permits: 3}, observe.AcquireResult{Err: refused},
			"dblock.lock dblock.lock.mode=permits dblock.lock.permits=3 dblock.operation=lock error.type=refused " +
				"Error refused",
		},
		{
			"a TryLock that finds a holder has not failed", nil,
			observe.Attempt{Name: "n"}, observe.AcquireResult{Err: refused},
			"dblock.trylock dblock.lock.mode=exclusive dblock.operation=trylock error.type=refused Unset ",
		},
		{
			"a TryLock that fails", nil,
			observe.Attempt{Name: "n", Shared: true}, observe.AcquireResult{Err: dblock.ErrSchema},
			"dblock.trylock dblock.lock.mode=shared dblock.operation=trylock error.type=schema Error schema",
		},
		{
			"a driver's error that is not UTF-8", []dblockotel.Option{dblockotel.WithNamesInSpans()},
			observe.Attempt{Name: "n", Wait: true}, observe.AcquireResult{Err: errors.New("driver: \xff")},
			"dblock.lock dblock.lock.mode=exclusive dblock.lock.name=n dblock.operation=lock error.type=failed " +
				"Error driver: \uFFFD",
		},
		{
			"names and attributes are added where they are asked for",
			[]dblockotel.Option{dblockotel.WithNamesInSpans(), app},
			observe.Attempt{Name: "n", Wait: true}, observe.AcquireResult{Err: refused},
			"dblock.lock app=x dblock.lock.mode=exclusive dblock.lock.name=n dblock.operation=lock " +
				"error.type=refused Error " + refused.Error(),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			sdk := newTelemetry(t)
			o := dblockotel.Observer(sdk.with(c.options...)...)
			o.AcquireEnd(o.AcquireStart(t.Context(), c.attempt), c.attempt, c.result)
			ended := sdk.spans.Ended()
			require.Equal(t, len(ended), 1, "spans")
			if got := text(ended[0]); got != c.want {
				t.Errorf("%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// The context of AcquireEnd may have spans in it that others have put there.
func TestTwoObserversEachEndTheirOwnSpan(t *testing.T) {
	outer, inner := newTelemetry(t), newTelemetry(t)
	o := observe.All(dblockotel.Observer(outer.with()...), dblockotel.Observer(inner.with()...))
	a := observe.Attempt{Name: "n", Wait: true}
	o.AcquireEnd(o.AcquireStart(t.Context(), a), a, observe.AcquireResult{Token: 7})
	for which, sdk := range map[string]*telemetry{"outer": outer, "inner": inner} {
		if started, ended := sdk.spans.Started(), sdk.spans.Ended(); len(started) != 1 || len(ended) != 1 ||
			!strings.Contains(text(ended[0]), "token=7") {
			t.Errorf("%s: %d spans began, and %d ended: %v", which, len(started), len(ended), ended)
		}
	}
	if parent := inner.spans.Ended()[0].Parent(); parent.SpanID() != outer.spans.Ended()[0].SpanContext().SpanID() {
		t.Error("the inner span is not below the outer")
	}
}

func TestARealClientIsTracedAndMeasured(t *testing.T) {
	sdk := newTelemetry(t)
	db := database(t)
	told := make(chan struct{}, 9)
	after := observe.Observer{AcquireEnd: func(context.Context, observe.Attempt, observe.AcquireResult) {
		told <- struct{}{}
	}}
	client := open(t, db, dblock.WithObserver(observe.All(after, dblockotel.Observer(sdk.with()...))),
		dblock.WithTTL(time.Second))
	rival := open(t, db)
	registration, err := dblockotel.Watch(client, sdk.with()...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = registration.Unregister() })

	ctx, request := sdk.tracers.Tracer("the application").Start(t.Context(), "request")
	lock, err := client.Lock(ctx, "n")
	require.NoError(t, err)
	other, err := rival.Lock(t.Context(), "m")
	require.NoError(t, err)
	require.ErrorIs(t, require.ErrOf(client.TryLock(ctx, "m")), dblock.ErrNotAcquired)
	<-told
	<-told
	request.End()
	spans := sdk.spans.Ended()
	if len(spans) != 3 || spans[0].Name() != "dblock.lock" || spans[1].Name() != "dblock.trylock" {
		t.Fatalf("spans %v", spans)
	}
	for _, span := range spans[:2] {
		if span.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("%s is not below the request", span.Name())
		}
		if span.Status().Code != codes.Unset || span.SpanKind() != oteltrace.SpanKindInternal {
			t.Errorf("%s: %v %v", span.Name(), span.Status(), span.SpanKind())
		}
	}
	if got := text(spans[0]); !strings.Contains(got, "dblock.lock.token="+attribute.Int64Value(lock.Token()).String()) {
		t.Errorf("%s, want the token %d", got, lock.Token())
	}

	require.NoError(t, require.ErrOf(rival.Break(t.Context(), "n", "to see it")))
	<-lock.Context().Done()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all := sdk.collect()
		_, lost := all["dblock.lock.losses"]
		_, beat := all["dblock.heartbeat.duration"]
		_, held := all["dblock.held.count"]
		if lost && beat && held {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("lost %v, beat %v, held %v: %v", lost, beat, held, all)
		}
	}
	require.NoError(t, other.Unlock(t.Context()))
}
