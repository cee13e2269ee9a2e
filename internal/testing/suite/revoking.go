package suite

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var revoking = inPlaces(own{
	{"Break takes a name from its holder, be it its own, notifies it, and grants the name to the next", breakLock},
	{"whoever loses a lock to Break reads by whom and why, however it notices, and in the log", breakTells},
	{"Break with a token ends the rest of that holder, and of no other", breakTokenAtRest},
}, flowing{
	{"Ask tells every holder why, and takes nothing away", ask},
	{"Break waits for a transaction that the holder guards", breakGuarded},
	{"Break with tokens takes a name only from the holders that have them", breakTokens},
}, moving{
	{"Break ends the rest of a name, held or not, and hands it on", breakRest},
})

func ask(t *testing.T, e *env) {
	a, b, c := e.client(t), e.client(t), e.client(t)
	is(t, c.Ask(t.Context(), "n", "nobody has it"), dblock.ErrNotHeld)
	w := lock(t, a, "n")
	require.NoError(t, c.Ask(t.Context(), "n", "I want it"))
	assert.Equal(t, within(t, soon, "the holder is asked", w.Asked()), "I want it", "asked")
	live(t, w)
	require.NoError(t, c.Ask(t.Context(), "n", "still"))
	assert.Equal(t, within(t, soon, "the holder is asked again", w.Asked()), "still", "asked")
	unlock(t, w)
	r1, r2 := lock(t, a, "n", dblock.Shared()), lock(t, b, "n", dblock.Shared())
	if len(r1.Asked()) > 0 {
		t.Error("the next holder was asked")
	}
	require.NoError(t, c.Ask(t.Context(), "n", "both of you"))
	for _, r := range []*dblock.Lock{r1, r2} {
		assert.Equal(t, within(t, soon, "a reader is asked", r.Asked()), "both of you", "asked")
		unlock(t, r)
	}
	is(t, c.Ask(t.Context(), "n", ""), dblock.ErrInvalidOption)
	is(t, c.Ask(t.Context(), "n", strings.Repeat("x", 1025)), dblock.ErrInvalidOption)
	is(t, c.Ask(t.Context(), "", "x"), dblock.ErrInvalidName)
	e.told(t, c, "n", "asked", 3)
}

// Broken by a cool-down that only the clock can end.
func breakRest(t *testing.T, e *env) {
	a, c := e.client(t), e.client(t)
	b := e.client(t, dblock.WithTTL(2*time.Minute)) // which looks by itself too late to hand anything on
	for i, held := range []bool{false, true} {
		l := lock(t, a, "n", dblock.MinHold(time.Hour)) // no test sees its end
		if !held {
			unlock(t, l)
		}
		waiter := e.waiter(t, b, "n")
		breaks(t, c, "n", i)
		unlock(t, granted(t, soon, waiter))
		if held {
			e.advance(t, longTTL/5+time.Second) // it hears of it with a heartbeat
			ended(t, soon, l, dblock.ErrLost)
		}
	}
	unlock(t, lock(t, a, "alone", dblock.MinHold(time.Hour)))
	breaks(t, c, "alone", 0)
	unlock(t, lock(t, b, "alone"))
	e.told(t, c, "alone", "broken", 1)
	e.idle(t, "n")
}

// breaks has a client break a name, and checks from how many holders it was taken.
func breaks(t testing.TB, c Client, name string, want int, tokens ...int64) {
	t.Helper()
	if n, err := c.Break(t.Context(), name, "a test", tokens...); n != want || err != nil {
		t.Errorf("%q was taken from %d, %v: want %d", name, n, err, want)
	}
}

// told checks how many events of a kind a name has.
func (e *env) told(t testing.TB, c Client, name, kind string, want int) (events []inspect.Event) {
	t.Helper()
	eventually(t, soon, "the history is written", func() bool {
		events = nil
		for event, err := range c.Events(t.Context(), inspect.EventFilter{Name: name, Kinds: []string{kind}}) {
			require.NoError(t, err)
			events = append(events, event)
		}
		return len(events) == want
	})
	return events
}

func breakLock(t *testing.T, e *env) {
	a, b, c := e.client(t), e.client(t), e.client(t)
	breaks(t, c, "n", 0) // nobody has it
	l := lock(t, a, "n")
	next := e.waiter(t, b, "n")
	_ = l.Asked() // it listens
	breaks(t, c, "n", 1)
	successor := granted(t, soon, next)
	ended(t, soon, l, dblock.ErrLost)
	is(t, l.Unlock(t.Context()), dblock.ErrLost)
	rising(t, l.Token(), successor.Token())
	live(t, successor)
	unlock(t, successor)
	events := e.told(t, c, "n", "broken", 1)
	if ev := events[0]; ev.Token != l.Token() || !strings.Contains(ev.Detail, "a test") || ev.At.IsZero() {
		t.Errorf("%+v", ev)
	}
	again := lock(t, a, "n") // the session lives on
	breaks(t, a, "n", 1)     // its own
	ended(t, soon, again, dblock.ErrLost)
	e.idle(t, "n")
}

// Broken by a loss that does not read the history, or that takes the reason of an earlier Break.
func breakTells(t *testing.T, e *env) {
	var log strings.Builder
	a := e.client(t, dblock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	b := e.client(t, dblock.WithHost("ops-1"))
	breaking := func(name, reason string) {
		n, err := b.Break(t.Context(), name, reason)
		require.NoError(t, err)
		assert.Equal(t, n, 1, "holders")
	}
	before := lock(t, a, "n")
	_ = before.Asked() // from now on the client listens, and hears of Break
	eventually(t, soon, "the client listens", func() bool { return a.Stats().Listening || e.polled() })
	breaking("n", "an earlier reason")
	ended(t, soon, before, dblock.ErrLost)
	for what, notice := range map[string]func(l *dblock.Lock) error{
		"Context":   func(l *dblock.Lock) error { <-l.Context().Done(); return context.Cause(l.Context()) },
		"Unlock":    func(l *dblock.Lock) error { return l.Unlock(t.Context()) },
		"Record":    func(l *dblock.Lock) error { return l.Record(t.Context(), "kind", "") },
		"Downgrade": func(l *dblock.Lock) error { return l.Downgrade(t.Context()) },
		"Extend":    func(l *dblock.Lock) error { return l.Extend(t.Context(), time.Hour) },
		"Detach":    func(l *dblock.Lock) error { return l.Detach(t.Context(), time.Hour) },
	} {
		for mode, options := range map[string][]dblock.LockOption{"a lock": nil, "a share": {dblock.Shared()}} {
			if what == "Extend" {
				options = []dblock.LockOption{dblock.Lease(time.Hour)}
			}
			if mode == "a share" && (what == "Downgrade" || what == "Detach") {
				continue
			}
			reason, tries := what+" of "+mode, 5 // the client waits for the history for a moment only
			for told := false; !told; tries-- {
				l := lock(t, a, "n", options...)
				breaking("n", reason)
				err := notice(l)
				if told = strings.Contains(err.Error(), "broken by "); !told && tries > 1 {
					continue
				}
				says(t, err, dblock.ErrLost, "broken by ops-1 (process ", "): "+reason)
				says(t, l.Unlock(t.Context()), dblock.ErrLost, "): "+reason)
				told = true
			}
		}
	}
	require.NoError(t, a.Close(t.Context())) // it writes the log
	if !strings.Contains(log.String(), "broken by ops-1 (process ") {
		t.Errorf("the log is %s", &log)
	}
}

func breakGuarded(t *testing.T, e *env) {
	if e.wiring.Kind == SQLite { // where the transaction has locked the database
		return
	}
	app := e.app(t, 5)
	a, c := e.clientOf(t, app), e.client(t)
	for _, options := range [][]dblock.LockOption{nil, {dblock.Shared()}} {
		l := lock(t, a, "n", options...)
		tx := beginTx(t, app, e.levels()[0])
		require.NoError(t, a.Guard(t.Context(), tx, l))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		n, err := c.Break(ctx, "n", "no patience")
		cancel()
		assert.Equal(t, n, 0, "were broken")
		is(t, err, dblock.ErrNotAcquired, context.DeadlineExceeded)
		live(t, l)
		done := make(chan error, 1)
		go func() {
			_, err := c.Break(t.Context(), "n", "patience")
			done <- err
		}()
		require.NoError(t, tx.commit(context.Background()))
		require.NoError(t, within(t, soon, "the lock is broken", done))
		ended(t, soon, l, dblock.ErrLost)
	}
	e.idle(t, "n")
}

func breakTokens(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	c := e.client(t)
	for _, none := range []int64{0, -1} {
		is(t, assert.ErrOf(c.Break(t.Context(), "n", "for the test", 1, none)), dblock.ErrInvalidOption)
	}
	before := lock(t, a, "n")
	unlock(t, before)
	l := lock(t, b, "n")
	breaks(t, c, "n", 0, before.Token())

	// It goes to the next between the look and the theft.
	var next *dblock.Lock
	app := e.app(t, 5)
	app.hook(fakedb.After(describes, sync.OnceFunc(func() {
		unlock(t, l)
		next = lock(t, b, "n")
	})))
	breaks(t, e.clientOf(t, app), "n", 0, l.Token())
	live(t, next)
	refused(t, a, "n")
	breaks(t, c, "n", 1, before.Token(), next.Token())
	ended(t, soon, next, dblock.ErrLost)
	breaks(t, c, "n", 0, next.Token())

	r1, r2, r3 := lock(t, a, "n", dblock.Shared()), lock(t, b, "n", dblock.Shared()), lock(t, a, "n", dblock.Shared())
	info, err := c.Inspect(t.Context(), "n")
	if err != nil || len(info.Holders) != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
	breaks(t, c, "n", 1, info.Holders[1].Token)
	ended(t, soon, r2, dblock.ErrLost)
	live(t, r1)
	breaks(t, c, "n", 1, r1.Token(), r2.Token())
	ended(t, soon, r1, dblock.ErrLost)
	live(t, r3)
	r4, writer := lock(t, a, "n", dblock.Shared()), locking(context.Background(), b, "n")
	e.queued(t, "n", 1)
	breaks(t, c, "n", 2) // all readers
	w := granted(t, soon, writer)
	for _, r := range []*dblock.Lock{r3, r4} {
		ended(t, soon, r, dblock.ErrLost)
	}
	live(t, w)
	unlock(t, w)
	e.told(t, c, "n", "broken", 5)
	e.idle(t, "n")
}

func breakTokenAtRest(t *testing.T, e *env) {
	a, c := e.client(t), e.client(t)
	b := e.client(t, dblock.WithTTL(2*time.Minute)) // which looks by itself too late to hand anything on
	l := lock(t, a, "n", dblock.MinHold(time.Hour))
	_ = l.Asked() // it listens
	waiter := e.waiter(t, b, "n")
	breaks(t, c, "n", 1, l.Token())
	ended(t, soon, l, dblock.ErrLost)
	unlock(t, granted(t, soon, waiter))

	first := lock(t, a, "n", dblock.MinHold(time.Microsecond))
	unlock(t, first)
	eventually(t, soon, "the name has rested", func() bool {
		return e.number(t, "SELECT count(*) FROM dblock_locks WHERE name = 'n' AND rests_until < ?", e.now(t)) == 1
	})
	second := lock(t, a, "n", dblock.MinHold(time.Hour))
	unlock(t, second)
	for _, l := range []*dblock.Lock{first, second} { // neither has the name any more
		breaks(t, c, "n", 0, l.Token())
		refused(t, b, "n")
	}
	breaks(t, c, "n", 0)
	unlock(t, lock(t, b, "n"))
	e.idle(t, "n")
}
