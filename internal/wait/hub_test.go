package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/leak"
)

// quietClient hears nothing of its hub.
type quietClient struct{}

func (quietClient) Stray(string)         {}
func (quietClient) Own(string)           {}
func (quietClient) Listener(bool, error) {}

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const (
	me     = "me"
	safety = 5 * time.Second
)

// table is a database of a few names. Its listener, while connected, receives what is sent to
// hints.
type table struct {
	mu       sync.Mutex
	states   map[string]driver.State
	broken   chan struct{}
	hints    chan protocol.Hint
	deaf     bool          // the engine can only be polled
	slow     time.Duration // to connect; 0: 50 ms
	looks    int
	sweeps   int
	bury     func()        // the next sweep finds a dead process, and does this
	hold     chan struct{} // not nil: Look returns after it is closed
	reclaims []string
	hub      *Hub
	busy     int // how many takeovers are still refused
}

func (f *table) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// queue puts attempts of this session into the queue of a name that another holds.
func (f *table) queue(name string, left time.Duration, attempts ...string) {
	f.set(func() {
		f.states[name] = driver.State{Name: name, Waiters: len(attempts), Queued: attempts,
			Holder: protocol.Holder{Session: "other", Attempt: "theirs", Grant: protocol.Grant{Token: 1}, Left: left}}
	})
}

// grant has an attempt of this session hold a name.
func (f *table) grant(name, attempt string) {
	f.set(func() { f.states[name] = held(name, attempt) })
}

// held is the state of a name that an attempt of this session holds.
func held(name, attempt string) driver.State {
	grant := protocol.Grant{Token: 2}
	return driver.State{Name: name, Granted: []driver.OwnGrant{{Attempt: attempt, Grant: grant}},
		Holder: protocol.Holder{Session: me, Attempt: attempt, Grant: grant, Left: time.Minute}}
}

func (f *table) Read(ctx context.Context, _ string, names []string, waiters int) (states []driver.State, err error) {
	f.mu.Lock()
	f.looks++
	for _, name := range names {
		if s, ok := f.states[name]; ok {
			states = append(states, s)
		}
	}
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return states, nil
}

func (f *table) Recount(context.Context, string) (protocol.Result, error) {
	return protocol.Result{}, nil
}

func (f *table) Sweep(context.Context) bool {
	f.mu.Lock()
	f.sweeps++
	bury := f.bury
	f.bury = nil
	f.mu.Unlock()
	if bury != nil {
		bury()
	}
	return bury != nil
}

func (f *table) TakeOver(_ context.Context, name string, _ protocol.Holder) (protocol.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reclaims = append(f.reclaims, name)
	if f.busy > 0 {
		f.busy--
		return protocol.Result{}, driver.ErrBusy
	}
	next := protocol.Handoff{Session: me, Attempt: f.states[name].Queued[0], Grant: protocol.Grant{Token: 2}}
	f.states[name] = held(name, next.Attempt)
	f.hub.Deliver([]protocol.Handoff{next}, 0)
	return protocol.Result{Outcome: protocol.Done}, nil
}

func (f *table) Listen(ctx context.Context, ready func(), wake func(protocol.Hint)) error {
	if f.deaf {
		return driver.ErrUnsupported
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(cmp.Or(f.slow, 50*time.Millisecond)):
	}
	var broken chan struct{}
	f.set(func() { broken = f.broken })
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-broken:
			return errors.New("broken")
		case hint := <-f.hints:
			wake(hint)
		}
	}
}

var quiet = slog.New(slog.DiscardHandler)

func room(t *testing.T, f *table) *Hub {
	f.states, f.hints, f.broken = map[string]driver.State{}, make(chan protocol.Hint), make(chan struct{})
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	h := New(ctx, f, me, Config{
		Client: quietClient{},
		Clock:  clock.Func(func() time.Duration { return time.Since(began) }),
		Log:    quiet, Hearing: outage.New(quiet, ""), Looking: outage.New(quiet, ""), Taking: outage.New(quiet, ""),
		Safety: safety, Limit: time.Minute,
	})
	f.hub = h
	t.Cleanup(func() { cancel(); h.Wait() })
	return h
}

// waiting is a waiter, and where its answer arrives.
type waiting struct {
	*Waiter
	answers chan Result
}

func (h *Hub) add(name, attempt string) waiting {
	answers := make(chan Result, 1)
	return waiting{h.Add(name, attempt, func(r Result) { answers <- r }), answers}
}

func (h *Hub) enter(name, attempt string) waiting {
	w := h.add(name, attempt)
	h.Queued(w.Waiter)
	return w
}

// answered waits for the answer and returns it with the time it took.
func answered(w waiting) (Result, time.Duration) {
	began := time.Now()
	return <-w.answers, time.Since(began)
}

func TestWhileAnybodyWaitsTheHostIsSwept(t *testing.T) {
	for _, sweeps := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := &table{}
			h := room(t, f)
			h.config.Sweeps = sweeps
			swept := func(during time.Duration) (n int) {
				time.Sleep(during)
				f.set(func() { n, f.sweeps = f.sweeps, 0 })
				return n
			}
			h.Listen()
			if n := swept(time.Minute); n > 0 {
				t.Errorf("%d sweeps, and nobody waits", n)
			}
			f.queue("n", time.Hour, "a")
			w := h.enter("n", "a")
			if n := swept(107 * sweepPause); sweeps && (n < 107 || n > 112) || !sweeps && n > 0 {
				t.Errorf("%d sweeps", n)
			}
			if !sweeps {
				return
			}
			f.set(func() {
				f.bury = func() { f.queue("n", 0, "a") }
			})
			if r, took := answered(w); !r.Granted || took > sweepPause+slack {
				t.Errorf("%+v after %v", r, took)
			}
		})
	}
}

func TestALongSweepDelaysNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{deaf: true}
		h := room(t, f)
		h.config.Sweeps = true
		over := make(chan struct{})
		defer close(over)
		f.bury = func() { <-over }
		f.queue("n", time.Hour, "a")
		w := h.enter("n", "a")
		time.Sleep(time.Minute)
		f.grant("n", "a")
		if r, took := answered(w); !r.Granted || took > slowestPoll {
			t.Errorf("%+v after %v", r, took)
		}
	})
}

func TestAHintIsFollowedAtOnce(t *testing.T) {
	for _, hint := range []protocol.Hint{{Attempt: "a1"}, {}, {Attempt: "a1", Grant: protocol.Grant{Token: 2}}} {
		synctest.Test(t, func(t *testing.T) {
			f := &table{}
			h := room(t, f)
			f.queue("n", time.Hour, "a1")
			w := h.enter("n", "a1")
			time.Sleep(7 * safety)
			f.grant("n", "a1")
			f.hints <- hint
			if r, took := answered(w); !r.Granted || r.Grant.Token != 2 || took > time.Millisecond {
				t.Errorf("%+v after %v", r, took)
			}
		})
	}
}

func TestNoGrantIsMissedWhileNothingListens(t *testing.T) {
	for name, lose := range map[string]func(f *table){
		"before it is ready": func(f *table) {},
		"after it broke": func(f *table) {
			time.Sleep(time.Second)
			f.set(func() { close(f.broken); f.broken = make(chan struct{}) })
			synctest.Wait()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &table{}
			h := room(t, f)
			f.queue("n", time.Hour, "a1")
			w := h.enter("n", "a1")
			lose(f)
			f.grant("n", "a1") // without a hint
			if r, took := answered(w); !r.Granted || took > 3*slowestPoll {
				t.Errorf("%s: %+v after %v", name, r, took)
			}
		})
	}
}

// Broken by queueing while the first listener connects: the name would stand still at a session
// that hears nothing.
func TestAPlaceInTheQueueIsTakenWhenTheListenerHears(t *testing.T) {
	for name, c := range map[string]struct {
		f    *table
		took time.Duration
	}{
		"connects in 50 ms": {&table{}, 50 * time.Millisecond},
		"never connects":    {&table{slow: time.Hour}, readyLimit},
		"cannot listen":     {&table{deaf: true}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := room(t, c.f)
			began := time.Now()
			h.Ready(t.Context())
			if took := time.Since(began); took != c.took {
				t.Errorf("%s: ready after %v, want %v", name, took, c.took)
			}
			began = time.Now()
			if h.Ready(t.Context()); c.f.slow == 0 && time.Since(began) != 0 {
				t.Errorf("%s: the second waiter waited %v", name, time.Since(began))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began = time.Now()
			if h.Ready(ctx); time.Since(began) != 0 {
				t.Errorf("%s: waited %v for a context that is over", name, time.Since(began))
			}
		})
	}
}

// cannot is a table whose engine cannot listen, for a reason.
type cannot struct {
	*table
	because error
}

func (c cannot) Listen(context.Context, func(), func(protocol.Hint)) error { return c.because }

// levels is what a log was told, by level.
type levels struct {
	slog.Handler
	said map[slog.Level]int
}

func (l levels) Enabled(context.Context, slog.Level) bool { return true }

func (l levels) Handle(_ context.Context, r slog.Record) error { l.said[r.Level]++; return nil }

func TestTheHubsOfAClientSayOnceWhyTheyPoll(t *testing.T) {
	for _, c := range []struct {
		because error
		level   slog.Level
	}{
		{driver.Fail(driver.ErrUnsupported, errors.New("the pool is small")), slog.LevelInfo},
		{driver.ErrCannotListen, slog.LevelDebug},
		{driver.ErrDeaf, slog.LevelWarn},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, told := levels{said: map[slog.Level]int{}}, new(atomic.Bool)
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				h := New(ctx, cannot{&table{}, c.because}, me, Config{
					Client: quietClient{},
					Clock:  clock.Func(func() time.Duration { return 0 }), Log: slog.New(log), Polling: told,
					Safety: safety, Limit: time.Minute,
				})
				h.Ready(t.Context())
				cancel()
				h.Wait()
			}
			if log.said[c.level] != 1 || len(log.said) != 1 {
				t.Errorf("%v: %v, want one line at %v", c.because, log.said, c.level)
			}
		})
	}
}

// hoarse is a table that cannot be listened to until healed.
type hoarse struct {
	*table
	because error
	healed  atomic.Bool
	tries   []time.Time
}

func (f *hoarse) Listen(ctx context.Context, ready func(), wake func(protocol.Hint)) error {
	if f.healed.Load() {
		return f.table.Listen(ctx, ready, wake)
	}
	f.tries = append(f.tries, time.Now())
	return f.because
}

// Broken by taking one reason for final: a first notification that was late is no pooler.
func TestListeningIsTriedAgainAtGrowingIntervalsWhateverTheReason(t *testing.T) {
	for because, most := range map[error]time.Duration{
		driver.ErrUnavailable: relistenMax, driver.ErrUnsupported: relistenRarely,
		driver.ErrCannotListen: relistenRarely, driver.ErrDeaf: relistenRarely,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &hoarse{table: &table{states: map[string]driver.State{}, hints: make(chan protocol.Hint),
				broken: make(chan struct{})}, because: because}
			log, began := levels{said: map[slog.Level]int{}}, time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			h := New(ctx, f, me, Config{
				Client: quietClient{},
				Clock:  clock.Func(func() time.Duration { return time.Since(began) }), Log: slog.New(log),
				Polling: new(atomic.Bool),
				Hearing: outage.New(quiet, ""), Looking: outage.New(quiet, ""), Taking: outage.New(quiet, ""),
				Safety: safety, Limit: time.Minute,
			})
			defer h.Wait()
			defer cancel()
			h.Listen()
			time.Sleep(time.Hour)
			synctest.Wait()
			var last time.Duration
			for i := range len(f.tries) - 1 {
				last = f.tries[i+1].Sub(f.tries[i])
				if last > most || last < relistenMin/2 {
					t.Errorf("%v: try %d came %v after the one before", because, i+2, last)
				}
			}
			if last < most/2 || last > most {
				t.Errorf("%v: the interval grew to %v, want about %v", because, last, most)
			}
			f.healed.Store(true)
			time.Sleep(most)
			synctest.Wait()
			if !h.Listening() {
				t.Errorf("%v: it is not tried any more after %d times", because, len(f.tries))
			}
			if lines := log.said[slog.LevelInfo] + log.said[slog.LevelDebug] +
				log.said[slog.LevelWarn]; errors.Is(because, driver.ErrUnsupported) && lines != 2 {
				t.Errorf("%v: %d lines in the log, want one that it polls, and one that it does not any more", because,
					lines)
			}
		})
	}
}

func TestWithoutAListenerOnePollServesAllNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{deaf: true}
		h := room(t, f)
		var waiters []waiting
		for i := range 100 {
			name, attempt := fmt.Sprint("n", i), fmt.Sprint("a", i)
			f.queue(name, time.Hour, attempt)
			waiters = append(waiters, h.enter(name, attempt))
		}
		time.Sleep(10 * time.Second)
		f.set(func() {
			if most := int(10*time.Second/slowestPoll) + 40; f.looks > most {
				t.Errorf("%d polls in 10 s for 100 names, want at most %d", f.looks, most)
			}
		})
		f.grant("n42", "a42")
		if r, took := answered(waiters[42]); !r.Granted || took > 2*slowestPoll {
			t.Errorf("%+v after %v", r, took)
		}
	})
}

// Broken by one interval for all polls: hand-offs among clients that poll would take that long.
func TestANameThatMovesOnFastIsPolledFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{deaf: true}
		h := room(t, f)
		for i := range 100 {
			attempt := fmt.Sprint("a", i)
			f.queue("n", time.Hour, attempt)
			w := h.enter("n", attempt)
			time.Sleep(3 * time.Millisecond) // until its turn
			f.grant("n", attempt)
			if r, took := answered(w); !r.Granted || took > 2*fastestPoll {
				t.Fatalf("%+v after %v", r, took)
			}
		}
	})
}

func TestALostHintDelaysAGrantByTheSafetyInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{}
		h := room(t, f)
		f.queue("n", time.Hour, "a1")
		w := h.enter("n", "a1")
		time.Sleep(time.Minute)
		f.grant("n", "a1")
		if r, took := answered(w); !r.Granted || took > safety+slack {
			t.Errorf("%+v after %v", r, took)
		}
	})
}

func TestIdleWaitersShareOneSlowLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{}
		h := room(t, f)
		f.queue("n", time.Hour)
		for i := range 200 {
			attempt := fmt.Sprint("a", i)
			f.set(func() {
				s := f.states["n"]
				s.Queued = append(s.Queued, attempt)
				f.states["n"] = s
			})
			h.enter("n", attempt)
		}
		time.Sleep(10 * time.Minute)
		f.set(func() {
			if most := int(10*time.Minute/safety) + 3; f.looks > most {
				t.Errorf("%d looks in 10 minutes for 200 waiters, want at most %d", f.looks, most)
			}
		})
	})
}

func TestTheLockOfAnExpiredHolderIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{busy: 3} // the holder has a guarded transaction open for a while
		h := room(t, f)
		f.queue("n", 2*time.Second, "a1")
		w := h.enter("n", "a1")
		time.Sleep(firstLook + time.Millisecond)
		f.queue("n", 0, "a1")
		r, took := answered(w)
		if !r.Granted || took < 2*time.Second-time.Millisecond || took > 2*time.Second+slack+4*2*busyRetry {
			t.Errorf("%+v after %v", r, took)
		}
		f.set(func() {
			if len(f.reclaims) != 4 {
				t.Errorf("tried %d times, want 4", len(f.reclaims))
			}
		})
	})
}

func TestOnlyAWaiterQueuedBeforeTheLookCanBeGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{hold: make(chan struct{})}
		h := room(t, f)
		f.queue("n", time.Hour) // the delayed answer has an empty queue
		gone := h.enter("n", "a1")
		sent := h.add("n", "a3") // its request is on its way
		time.Sleep(2 * firstLook)
		late := h.enter("n", "a2")
		f.set(func() { close(f.hold); f.hold = nil })
		if r, _ := answered(gone); r.Granted {
			t.Errorf("granted: %+v", r)
		}
		synctest.Wait()
		select {
		case r := <-late.answers:
			t.Errorf("an answer from before it was queued: %+v", r)
		case r := <-sent.answers:
			t.Errorf("an answer from before it was sent: %+v", r)
		default:
		}
		f.set(func() { delete(f.states, "n") }) // the row is purged, or the table restored
		if r, took := answered(late); r.Granted || took > safety+slack {
			t.Errorf("%+v after %v", r, took)
		}
	})
}

func TestAWaiterInTheProcessIsAnsweredWithoutTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &table{}
		h := room(t, f)
		f.queue("n", time.Hour, "a1")
		w := h.enter("n", "a1")
		h.Deliver([]protocol.Handoff{{Session: "other", Attempt: "a1"}}, 0) // not ours
		h.Deliver([]protocol.Handoff{{Session: me, Attempt: "a1", Grant: protocol.Grant{Token: 7}}}, 42)
		if r, took := answered(w); !r.Granted || r.Grant.Token != 7 || r.Asked != 42 || took != 0 {
			t.Errorf("%+v after %v", r, took)
		}
		early := h.add("n", "a2") // answered before its own statement has returned
		h.Deliver([]protocol.Handoff{{Session: me, Attempt: "a2"}}, 0)
		h.Queued(early.Waiter)
		if r, took := answered(early); !r.Granted || took != 0 {
			t.Errorf("%+v after %v", r, took)
		}
	})
}
