package dblockotel_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/dblock-go/dblock"
	dblockotel "github.com/dblock-go/dblock/contrib/otel"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// stats is a client.
type stats struct{ now dblock.Stats }

func (s *stats) Stats() dblock.Stats { return s.now }

func gauge[N int64 | float64](value N, pairs ...string) []metricdata.DataPoint[N] {
	return []metricdata.DataPoint[N]{{Attributes: attributes(pairs...), Value: value}}
}

func sum(name, description, unit string, monotonic bool, value int64, pairs ...string) metricdata.Metrics {
	return metricdata.Metrics{Name: name, Description: description, Unit: unit, Data: metricdata.Sum[int64]{
		Temporality: metricdata.CumulativeTemporality, IsMonotonic: monotonic, DataPoints: gauge(value, pairs...),
	}}
}

func TestWatchShowsTheStatsOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sdk := newTelemetry(t)
		client := &stats{dblock.Stats{Held: 2, Waiting: 3, Candidates: 5, OldestHold: time.Minute, EventsDropped: 4}}
		registration, err := dblockotel.Watch(client,
			sdk.with(dblockotel.WithAttributes(attribute.String("app", "x")))...)
		require.NoError(t, err)
		always := func(held int64) []metricdata.Metrics {
			return []metricdata.Metrics{
				sum("dblock.held.count", "How many locks the client holds.", "{lock}", false, held, "app", "x"),
				sum("dblock.waiting.count", "How many requests of the client wait for a lock.", "{request}", false, 3,
					"app", "x"),
				sum("dblock.candidate.count", "How many candidates of elections the client has that wait for as long "+
					"as another leads.", "{request}", false, 5, "app", "x"),
				{
					Name: "dblock.hold.oldest", Unit: "s",
					Description: "For how long the client has held the oldest lock that is without the option " +
						"Progress.",
					Data: metricdata.Gauge[float64]{DataPoints: gauge(60.0, "app", "x")},
				},
				sum("dblock.events.dropped", "How many events the client could not write.", "{event}", true, 4, "app",
					"x"),
			}
		}
		session := func(left float64, listening int64) []metricdata.Metrics {
			return []metricdata.Metrics{
				sum("dblock.listener.count", "1 while a listener wakes the waiters; 0: the client polls, or has not "+
					"waited yet.", "{listener}", false, listening, "app", "x"),
				{
					Name: "dblock.session.remaining", Unit: "s",
					Description: "How long the client's session lasts if no heartbeat succeeds any more.",
					Data:        metricdata.Gauge[float64]{DataPoints: gauge(left, "app", "x")},
				},
			}
		}
		same(t, sdk.collect(), always(2)...)
		client.now.Session, client.now.AliveUntil, client.now.Listening = "s", time.Now().Add(15*time.Second), true
		same(t, sdk.collect(), append(always(2), session(15, 1)...)...)
		client.now.Held, client.now.Listening = 0, false
		time.Sleep(time.Minute)
		same(t, sdk.collect(), append(always(0), session(0, 0)...)...)
		require.NoError(t, registration.Unregister())
		same(t, sdk.collect())
	})
}

func TestWatchNeedsAClient(t *testing.T) {
	assert.ErrorIs(t, assert.ErrOf(dblockotel.Watch(nil)), dblock.ErrInvalidOption)
}
