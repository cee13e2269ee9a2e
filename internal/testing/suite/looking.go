package suite

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var looking = inPlaces(own{
	{"Ping succeeds where a lock could be taken, and says what is wrong where not", ping},
	{"Stats tell of the session, of locks that are held, and of waiters", stats},
	{"to enter a lock again with other options is refused, and with the same or none it is not", otherOptions},
})

func ping(t *testing.T, e *env) {
	c := e.client(t)
	answers := func(want error) {
		t.Helper()
		is(t, c.Ping(t.Context()), want)
	}
	answers(nil)
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_sessions"), 0, "sessions of Ping")
	l := lock(t, c, "n")
	answers(nil)
	live(t, l)
	e.end(t, e.session(t, "n"))
	if err := c.Ping(t.Context()); err != nil { // otherwise a heartbeat was earlier: the next is later than soon
		is(t, err, dblock.ErrLost)
	}
	ended(t, soon, l, dblock.ErrLost)
	answers(nil)
	unlock(t, granted(t, patience, locking(t.Context(), c, "n")))
	answers(nil)

	e.needsSQL(t)
	bare := emptyEnv(t, e.wiring)
	schema(t, bare.client(t).Ping(t.Context()))
	is(t, e.clientOf(t, e.dead(t)).Ping(t.Context()), dblock.ErrConfig)
}

func stats(t *testing.T, e *env) {
	c := e.client(t)
	assert.Equal(t, c.Stats(), (dblock.Stats{}), "before the first lock")
	l := lock(t, c, "n")
	again, err := c.Lock(l.Context(), "n")
	require.NoError(t, err)
	reader := lock(t, c, "r", dblock.Shared())
	line := e.line(t, "n", 3, []Client{c}, background)
	if !e.polled() {
		eventually(t, patience, "the client listens", func() bool { return c.Stats().Listening })
	}
	s := c.Stats()
	if left := time.Until(s.AliveUntil); s.Session != e.session(t, "n") || left <= 0 || left > longTTL || s.Held != 2 ||
		s.Waiting != 3 || s.Listening == e.polled() || s.EventsDropped != 0 {
		t.Errorf("%+v: want the session of the lock, 2 held and 3 waiting", s)
	}
	unlock(t, again)
	unlock(t, reader)
	served(t, l, line...)
	if s := c.Stats(); s.Held != 0 || s.Waiting != 0 || s.Session == "" {
		t.Errorf("after all: %+v", s)
	}
}

func otherOptions(t *testing.T, e *env) {
	c := e.client(t)
	me := dblock.Owner("host", "thread")
	described := dblock.Metadata(map[string]string{"a": "1", "b": "2"})
	l := lock(t, c, "n", me, dblock.Lease(time.Hour), described, dblock.MinHold(time.Millisecond))
	bare := lock(t, c, "bare")
	permit := lock(t, c, "s", dblock.Permits(1, 3))
	for _, refusal := range []struct {
		of     *dblock.Lock
		option dblock.LockOption
		says   []string
	}{
		{l, dblock.Lease(time.Minute), []string{"Lease", "1m0s", "1h0m0s"}},
		{l, dblock.MinHold(time.Second), []string{"MinHold", "1s", "1ms"}},
		{l, dblock.Metadata(map[string]string{"a": "1"}), []string{"Metadata", `{"a":"1"}`, `{"a":"1","b":"2"}`}},
		{bare, dblock.Lease(time.Minute), []string{"Lease", "1m0s", "none"}},
		{bare, described, []string{"Metadata", `{"a":"1","b":"2"}`, "none"}},
		{bare, dblock.MinHold(time.Minute), []string{"MinHold", "1m0s", "none"}},
		{permit, dblock.Permits(1, 4), []string{"Permits", "1 of 4", "1 of 3"}},
	} {
		for _, enter := range []func() error{
			func() error { _, err := c.Lock(refusal.of.Context(), refusal.of.Name(), refusal.option); return err },
			func() error { _, err := c.TryLock(refusal.of.Context(), refusal.of.Name(), refusal.option); return err },
			func() error {
				_, err := c.LockAll(refusal.of.Context(), []string{"other", refusal.of.Name()},
					dblock.For(refusal.of.Name(), refusal.option))
				return err
			},
		} {
			says(t, enter(), dblock.ErrInvalidOption, refusal.says...)
		}
		live(t, refusal.of)
	}
	for _, same := range [][]dblock.LockOption{
		nil, {me}, {dblock.Lease(time.Hour)}, {described}, {dblock.MinHold(time.Millisecond)}, {dblock.Shared()},
		{me, dblock.Lease(time.Hour), described, dblock.MinHold(time.Millisecond)},
	} {
		again, err := c.TryLock(l.Context(), "n", same...)
		if err != nil || again.Token() != l.Token() {
			t.Fatalf("with the same: %v", err)
		}
		unlock(t, again)
	}
	unlock(t, l)
	unlock(t, bare)
	unlock(t, permit)
	e.free(t, "other")
}
