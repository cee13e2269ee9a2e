package dblockprom_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dblock-go/dblock"
	dblockprom "github.com/dblock-go/dblock/contrib/prom"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/observe"
)

var errRefused = &dblock.NotAcquiredError{Host: "elsewhere"}

// full is a collector that has seen everything.
func full(t *testing.T, client string, options ...dblockprom.Option) *dblockprom.Collector {
	t.Helper()
	c := dblockprom.New(client, options...)
	o := c.Observer()
	ctx := t.Context()
	o.AcquireEnd(ctx, observe.Attempt{Name: "a/1", Wait: true}, observe.AcquireResult{Took: 3 * time.Second, Token: 7})
	o.AcquireEnd(ctx, observe.Attempt{Name: "a/2", Shared: true}, observe.AcquireResult{Took: time.Second,
		Err: errRefused})
	o.AcquireEnd(ctx, observe.Attempt{Name: "b/1", Permits: 2}, observe.AcquireResult{Took: time.Second,
		Err: dblock.ErrUnavailable})
	o.AcquireEnd(ctx, observe.Attempt{Name: "b/2", Wait: true, Candidate: true}, observe.AcquireResult{Took: time.Hour})
	o.HoldEnd(observe.HoldResult{Name: "a/1", Held: time.Minute})
	o.HoldEnd(observe.HoldResult{Name: "b/1", Held: time.Minute, Err: dblock.ErrLost})
	// as planned
	o.HoldEnd(observe.HoldResult{Name: "b/1", Held: time.Minute, Err: contract.Lost(contract.ErrLeaseOver)})
	o.HoldEnd(observe.HoldResult{Name: "b/2", Held: time.Minute, Err: dblock.ErrClosed})
	o.Heartbeat(time.Millisecond, nil)
	o.Heartbeat(time.Second, errors.New("refused"))
	o.Listener(true, nil)
	o.Listener(false, errors.New("broken"))
	o.Listener(false, dblock.ErrUnsupported) // it polls
	c.Watch(stats{dblock.Stats{Session: "s", AliveUntil: time.Now().Add(time.Hour), Listening: true, Held: 3,
		Waiting: 2, Candidates: 6, OldestHold: time.Minute, EventsDropped: 4}})
	require.NoError(t, c.Inspect(names{"a": 2, "b": 5, "c": 0}, dblockprom.Inspection{}))
	return c
}

// stats is a client with a TTL of 15 s.
type stats struct{ now dblock.Stats }

func (s stats) Stats() dblock.Stats { return s.now }
func (stats) TTL() time.Duration    { return 15 * time.Second }

func TestWhatAClientDoesIsCounted(t *testing.T) {
	shows(t, registry(t, full(t, "orders")), `
# HELP dblock_acquire_failures_total How many requests did not get their lock.
# TYPE dblock_acquire_failures_total counter
dblock_acquire_failures_total{client="orders",outcome="canceled"} 0
dblock_acquire_failures_total{client="orders",outcome="deadlock"} 0
dblock_acquire_failures_total{client="orders",outcome="failed"} 0
dblock_acquire_failures_total{client="orders",outcome="refused"} 1
dblock_acquire_failures_total{client="orders",outcome="timeout"} 0
dblock_acquire_failures_total{client="orders",outcome="unavailable"} 1
# HELP dblock_candidates_waiting How many candidates of elections the client has that wait for as long as another leads.
# TYPE dblock_candidates_waiting gauge
dblock_candidates_waiting{client="orders"} 6
# HELP dblock_events_dropped_total How many events the client could not write.
# TYPE dblock_events_dropped_total counter
dblock_events_dropped_total{client="orders"} 4
# HELP dblock_heartbeat_failures_total How many heartbeats failed.
# TYPE dblock_heartbeat_failures_total counter
dblock_heartbeat_failures_total{client="orders"} 1
# HELP dblock_inspection_success Whether the names could be read from the database.
# TYPE dblock_inspection_success gauge
dblock_inspection_success{client="orders"} 1
# HELP dblock_inspection_truncated Whether there were more names than are read.
# TYPE dblock_inspection_truncated gauge
dblock_inspection_truncated{client="orders"} 0
# HELP dblock_listener_losses_total How often the listener was lost, or could not be made.
# TYPE dblock_listener_losses_total counter
dblock_listener_losses_total{client="orders"} 1
# HELP dblock_listener_up 1 while a listener wakes the waiters; 0: the client polls, or has not waited yet.
# TYPE dblock_listener_up gauge
dblock_listener_up{client="orders"} 1
# HELP dblock_locks_held How many locks the client holds.
# TYPE dblock_locks_held gauge
dblock_locks_held{client="orders"} 3
# HELP dblock_locks_lost_total How many locks were lost while they were held.
# TYPE dblock_locks_lost_total counter
dblock_locks_lost_total{client="orders"} 1
# HELP dblock_locks_waiting How many requests of the client wait for a lock.
# TYPE dblock_locks_waiting gauge
dblock_locks_waiting{client="orders"} 2
# HELP dblock_longest_queue_waiters How many wait for the name with the longest queue.
# TYPE dblock_longest_queue_waiters gauge
dblock_longest_queue_waiters{client="orders"} 5
# HELP dblock_names_contended How many names are waited for, by any client.
# TYPE dblock_names_contended gauge
dblock_names_contended{client="orders"} 2
# HELP dblock_names_held How many names are held, by any client.
# TYPE dblock_names_held gauge
dblock_names_held{client="orders"} 3
# HELP dblock_session_ttl_seconds How long the session lasts from a heartbeat on.
# TYPE dblock_session_ttl_seconds gauge
dblock_session_ttl_seconds{client="orders"} 15
`, "dblock_acquire_failures_total", "dblock_candidates_waiting", "dblock_events_dropped_total", "dblock_heartbeat_failures_total", "dblock_inspection_success",
		"dblock_inspection_truncated", "dblock_listener_losses_total", "dblock_listener_up", "dblock_locks_held",
		"dblock_locks_lost_total",
		"dblock_locks_waiting", "dblock_longest_queue_waiters", "dblock_names_contended", "dblock_names_held",
		"dblock_session_ttl_seconds")
}

func TestDurationsAreHistogramsByOutcome(t *testing.T) {
	families, err := registry(t, full(t, "orders")).Gather()
	require.NoError(t, err)
	got := map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				got[f.GetName()+" "+strings.Join(labels, " ")] = fmt.Sprint(h.GetSampleCount(), " ", h.GetSampleSum())
			}
		}
	}
	for series, want := range map[string]string{ // client, mode, op, outcome
		"dblock_acquire_duration_seconds orders exclusive lock ok":           "1 3",
		"dblock_acquire_duration_seconds orders exclusive campaign ok":       "1 3600",
		"dblock_acquire_duration_seconds orders shared trylock refused":      "1 1",
		"dblock_acquire_duration_seconds orders permits trylock unavailable": "1 1",
		"dblock_hold_duration_seconds orders ok":                             "1 60",
		"dblock_hold_duration_seconds orders expired":                        "1 60",
		"dblock_hold_duration_seconds orders lost":                           "1 60",
		"dblock_hold_duration_seconds orders closed":                         "1 60",
		"dblock_heartbeat_duration_seconds orders":                           "2 1.001",
	} {
		assert.Equal(t, got[series], want, series)
		delete(got, series)
	}
	if len(got) > 0 {
		t.Errorf("and also %v", got)
	}
}

func TestMetricsAreNamedAsPrometheusWants(t *testing.T) {
	problems, err := testutil.GatherAndLint(registry(t, full(t, "orders"), full(t, "mail")))
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestClientsAreToldApartByALabel(t *testing.T) {
	r := registry(t, full(t, "orders"), dblockprom.New("mail"))
	shows(t, r, `
# HELP dblock_locks_lost_total How many locks were lost while they were held.
# TYPE dblock_locks_lost_total counter
dblock_locks_lost_total{client="mail"} 0
dblock_locks_lost_total{client="orders"} 1
`, "dblock_locks_lost_total")
	if err := r.Register(dblockprom.New("mail")); !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("a second collector of the same client: %v", err)
	}
	assert.NoError(t, r.Register(dblockprom.New("not \xff UTF-8")), "a client with a name that is not UTF-8")
}

func TestNamesAreLabelsOnlyWhereTheyAreAskedFor(t *testing.T) {
	group := func(name string) string {
		first, _, _ := strings.Cut(name, "/")
		if first == "a" {
			return first
		}
		return "\xff" // not UTF-8
	}
	r := registry(t, full(t, "orders", dblockprom.Names(group), nil))
	shows(t, r, `
# HELP dblock_acquire_failures_total How many requests did not get their lock.
# TYPE dblock_acquire_failures_total counter
dblock_acquire_failures_total{client="orders",name="a",outcome="refused"} 1
dblock_acquire_failures_total{client="orders",name="`+"\uFFFD"+`",outcome="unavailable"} 1
# HELP dblock_locks_lost_total How many locks were lost while they were held.
# TYPE dblock_locks_lost_total counter
dblock_locks_lost_total{client="orders",name="`+"\uFFFD"+`"} 1
`, "dblock_acquire_failures_total", "dblock_locks_lost_total")
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestAClientThatIsNotWatchedAndWithoutASessionHasNoGauges(t *testing.T) {
	c := dblockprom.New("orders")
	r := registry(t, c)
	for _, step := range []struct {
		client   dblockprom.Client
		held     float64
		sessions float64 // of dblock_session_remaining_seconds and its sisters; -1: they are missing
	}{
		{nil, -1, -1},
		{stats{dblock.Stats{Held: 2}}, 2, -1},
		{stats{dblock.Stats{Held: 2, Session: "s", AliveUntil: time.Now().Add(-time.Hour)}}, 2, 0},
		{nil, -1, -1},
	} {
		c.Watch(step.client)
		if got := value(t, r, "dblock_locks_held"); got != step.held {
			t.Errorf("%v: %v held", step.client, got)
		}
		for _, name := range []string{"dblock_session_remaining_seconds", "dblock_listener_up"} {
			assert.Equal(t, value(t, r, name), step.sessions, step.client, name)
		}
	}
}

func TestACollectorCountsARealClient(t *testing.T) {
	db := database(t)
	metrics, others := dblockprom.New("orders"), dblockprom.New("others")
	client := open(t, db, dblock.WithObserver(metrics.Observer()), dblock.WithTTL(2*time.Second))
	rival := open(t, db, dblock.WithObserver(others.Observer()))
	metrics.Watch(client)
	others.Watch(rival)
	require.NoError(t, metrics.Inspect(inspect.New(client), dblockprom.Inspection{Every: time.Nanosecond,
		Failed: func(err error) { t.Error(err) }}))
	r, theirs := registry(t, metrics), registry(t, others)
	expect := func(gatherer prometheus.Gatherer, name string, want float64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			got := value(t, gatherer, name)
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is %v, want %v", name, got, want)
			}
		}
	}
	lock, err := client.Lock(t.Context(), "a")
	require.NoError(t, err)
	expect(r, "dblock_locks_held", 1)
	expect(r, "dblock_names_held", 1)
	expect(r, "dblock_session_ttl_seconds", 2)
	require.ErrorIs(t, require.ErrOf(rival.TryLock(t.Context(), "a")), dblock.ErrNotAcquired)
	expect(theirs, "dblock_acquire_failures_total", 1)

	waited := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := rival.Lock(ctx, "a")
		waited <- err
	}()
	expect(r, "dblock_longest_queue_waiters", 1)
	expect(r, "dblock_names_contended", 1)
	expect(theirs, "dblock_locks_waiting", 1)
	cancel()
	require.ErrorIs(t, <-waited, context.Canceled)
	expect(theirs, "dblock_locks_waiting", 0)
	expect(theirs, "dblock_acquire_failures_total", 2)
	expect(r, "dblock_longest_queue_waiters", 0)

	require.NoError(t, require.ErrOf(rival.Break(t.Context(), "a", "to see it")))
	expect(r, "dblock_locks_lost_total", 1)
	expect(r, "dblock_locks_held", 0)
	require.ErrorIs(t, lock.Unlock(t.Context()), dblock.ErrLost)
	if beats := value(t, r, "dblock_heartbeat_duration_seconds"); beats < 1 {
		t.Errorf("%v heartbeats", beats)
	}
	shows(t, r, `
# HELP dblock_heartbeat_failures_total How many heartbeats failed.
# TYPE dblock_heartbeat_failures_total counter
dblock_heartbeat_failures_total{client="orders"} 0
`, "dblock_heartbeat_failures_total")
}

func TestRunsOfJobsAreCounted(t *testing.T) {
	c := dblockprom.New("orders")
	o := c.Observer()
	o.RunEnd(observe.RunResult{Name: "j"})
	o.RunEnd(observe.RunResult{Name: "j", Err: errors.New("broken")})
	o.SlotsLeftOut(observe.LeftOut{Name: "j", Skipped: 2, Missed: 3})
	shows(t, registry(t, c), `
# HELP dblock_job_runs_total How many runs of jobs have ended.
# TYPE dblock_job_runs_total counter
dblock_job_runs_total{client="orders",outcome="failed"} 1
dblock_job_runs_total{client="orders",outcome="ok"} 1
# HELP dblock_job_slots_left_out_total How many slots of jobs nothing was begun in.
# TYPE dblock_job_slots_left_out_total counter
dblock_job_slots_left_out_total{client="orders",why="missed"} 3
dblock_job_slots_left_out_total{client="orders",why="skipped"} 2
`, "dblock_job_runs_total", "dblock_job_slots_left_out_total")
}
