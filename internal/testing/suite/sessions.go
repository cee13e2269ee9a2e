package suite

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/reaper"
)

var sessions = inPlaces(own{
	{"a dead holder makes way for TryLock, for Lock and for a sweep of the reaper", deadHolder},
	{"a free name is not told as held where the pool has no connection", unseen},
	{"a heartbeat never moves the end of a lease back", beatOutOfOrder},
}, moving{
	{"a holder that dies while others wait is succeeded within a second after its time is over", succession},
	{"a client that is not used has no session and no connection, until it locks again", idleClient},
}, flowing{
	{"when the session is lost all its locks are, and the next Lock has a new session", sessionLost},
	{"a waiter that loses its session queues up again in a new one", waiterSessionLost},
	{"a waiter that loses its place in the queue puts itself back", placeGone},
	{"a lock that an operator took away is lost, and its holder learns of it", takenAway},
	{"a live holder is not taken for dead, however long it holds", longHolder},
	{"a client without a reaper leaves the dead alone, one with a reaper does not", withoutReaper},
	{"locks are held while the application has taken every connection of its pool", exhausted},
})

// orphan writes a lock of a session without heartbeats, and returns its token.
func (e *env) orphan(t testing.TB, name, session string, left time.Duration) (token int64) {
	t.Helper()
	now := e.now(t)
	e.ghost(t, session, left)
	e.exec(t, `INSERT INTO dblock_locks (name, session_id, host, thread, attempt, token, first_token, last_token, acquired_at, metadata)
		VALUES (?, ?, 'somewhere', 'some thread', ?, ?, ?, ?, ?, '')`, name, session, "a"+session, now-7, now-7, now-7, now)
	return now - 7
}

// ghost writes a session without heartbeats.
func (e *env) ghost(t testing.TB, session string, left time.Duration) {
	t.Helper()
	now := e.now(t)
	e.exec(t, "INSERT INTO dblock_sessions (id, host, pid, app, started_at) VALUES (?, 'somewhere', 1, 'ghost', ?)",
		session, now)
	e.exec(t, "INSERT INTO dblock_heartbeats (session_id, expires_at) VALUES (?, ?)", session, now+left.Microseconds())
}

func idleClient(t *testing.T, e *env) {
	a, c := e.appClient(t, 5)
	first := lock(t, c, "used")
	e.advance(t, 8*longTTL)
	live(t, first)
	unlock(t, first)
	e.advanceUntil(t, 8*longTTL, "the session has ended", func() bool { return c.Stats().Session == "" })
	eventually(t, soon, "the database knows of no session", func() bool {
		all, err := a.Backend.Sessions(brief(t), driver.SessionFilter{Dead: true}, "", 1)
		return err == nil && len(all) == 0
	})
	eventually(t, soon, "no connection is in use", func() bool {
		used := a.Backend.Connections()
		return used == driver.Pool{Most: used.Most} && (e.wiring.Kind != Postgres || e.wiring.Through != nil ||
			e.number(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "+
				"application_name LIKE 'dblock%'") == 0)
	})
	again := lock(t, c, "used")
	rising(t, first.Token(), again.Token())
	e.advance(t, 8*longTTL)
	live(t, again)
	unlock(t, again)
}

func sessionLost(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	a, b := lock(t, c, "a"), lock(t, c, "b", dblock.Lease(time.Hour))
	before := e.session(t, "a")
	e.end(t, before)
	ended(t, soon, a, dblock.ErrLost)
	ended(t, soon, b, dblock.ErrLost)
	is(t, a.Unlock(context.Background()), dblock.ErrLost)
	next := granted(t, soon, locking(t.Context(), c, "a"))
	rising(t, a.Token(), next.Token())
	if after := e.session(t, "a"); after == before {
		t.Errorf("session %s still, which is dead", after)
	}
	unlock(t, granted(t, soon, locking(t.Context(), other, "b")))
	live(t, next)
	unlock(t, next)
}

func waiterSessionLost(t *testing.T, e *env) {
	holder, c := e.client(t), e.client(t)
	first := lock(t, holder, "waited for")
	line := e.line(t, "waited for", 1, []Client{c}, background)
	before := e.text(t, "SELECT session_id FROM dblock_waiters")
	e.end(t, before)
	eventually(t, soon, "the waiter is in the queue with another session", func() bool {
		return e.number(t, "SELECT count(*) FROM dblock_waiters WHERE session_id <> ?", before) == 1
	})
	unlock(t, first)
	unlock(t, granted(t, soon, line[0]))
	eventually(t, soon, "the place of the dead session is gone", func() bool { return e.waiting(t, "waited for") == 0 })
}

func placeGone(t *testing.T, e *env) {
	first := lock(t, e.client(t), "waited for")
	line := e.line(t, "waited for", 2, []Client{e.client(t), e.client(t)}, background)
	for range 2 {
		attempt := e.text(t, "SELECT attempt FROM dblock_waiters ORDER BY ticket LIMIT 1")
		e.exec(t, "DELETE FROM dblock_waiters WHERE attempt = ?", attempt)
		e.exec(t, "UPDATE dblock_locks SET waiters = waiters - 1 WHERE name = 'waited for'")
		eventually(t, soon, "two wait again, one with a new attempt", func() bool {
			return e.waiting(t, "waited for") == 2 &&
				e.number(t, "SELECT count(*) FROM dblock_waiters WHERE attempt = ?", attempt) == 0
		})
	}
	served(t, first, line...)
	e.free(t, "waited for")
}

func takenAway(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	l := lock(t, c, "taken")
	kept := lock(t, c, "kept")
	e.exec(t, "UPDATE dblock_locks SET session_id = NULL, attempt = '' WHERE name = 'taken'")
	next := lock(t, other, "taken")
	ended(t, soon, l, dblock.ErrLost) // with a heartbeat that lists what there is
	live(t, kept)
	unlock(t, next)
	unlock(t, kept)
}

func deadHolder(t *testing.T, e *env) {
	c := e.client(t, dblock.WithoutReaper())
	for _, how := range []string{"TryLock", "Lock", "Sweep"} {
		token := e.orphan(t, how, "dead"+how, -time.Second)
		take := c.TryLock
		if how == "Lock" {
			take = c.Lock
		} else if how == "Sweep" {
			report, err := reaper.Sweep(brief(t), e.app(t, 2).engine())
			if err != nil || report.Expired != 1 || report.Freed != 1 {
				t.Errorf("swept: %v, %v: want 1 session expired and 1 lock freed", report, err)
			}
			e.free(t, how)
		}
		l, err := take(brief(t), how)
		require.NoError(t, err)
		rising(t, token, l.Token())
		assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_heartbeats WHERE session_id = ?", "dead"+how), 0,
			"the dead session still has its heartbeat")
		live(t, l)
		unlock(t, l)
		e.free(t, how)
	}
}

func succession(t *testing.T, e *env) {
	token := e.orphan(t, "orphaned", "dyingsession", time.Hour)
	clients := []Client{e.client(t), e.client(t, dblock.WithoutReaper())}
	line := e.line(t, "orphaned", 3, clients, background)
	// The last heartbeat. The waiters see it when they look, after a third of their TTL.
	const left = 2 * time.Minute
	e.exec(t, "UPDATE dblock_heartbeats SET expires_at = ? WHERE session_id = 'dyingsession'",
		e.now(t)+left.Microseconds())
	e.advance(t, left/2)
	stillWaits(t, 0, line[0])
	e.advance(t, left/2+time.Second)
	first := granted(t, soon, line[0])
	rising(t, token, first.Token())
	served(t, first, line[1:]...)
	e.free(t, "orphaned")
}

// beats waits until a session's heartbeat has been written so many times, and checks that the locks
// given go on.
func (e *env) beats(t testing.TB, session string, n int, locks ...*dblock.Lock) {
	t.Helper()
	const query = "SELECT expires_at FROM dblock_heartbeats WHERE session_id = ?"
	last := e.number(t, query, session)
	wait := eventually
	if e.clocks != nil {
		wait = e.advanceUntil
	}
	for range n {
		wait(t, patience, "the heartbeat comes", func() bool {
			for _, l := range locks {
				live(t, l)
			}
			now := e.number(t, query, session)
			moved := now != last
			last = now
			return moved
		})
	}
}

func longHolder(t *testing.T, e *env) {
	c, other := e.client(t), e.client(t)
	l := lock(t, c, "long")
	line := e.line(t, "long", 1, []Client{other}, background)
	e.beats(t, e.session(t, "long"), 11, l) // more than two TTLs
	served(t, l, line...)
}

func withoutReaper(t *testing.T, e *env) {
	if e.wiring.Through != nil {
		t.Skip("there Advance itself is the reaper")
	}
	e.orphan(t, "orphaned", "deadsession", -time.Second)
	c := e.client(t, dblock.WithReaper(reaper.Interval(time.Second)), dblock.WithoutReaper())
	l := lock(t, c, "own")
	e.beats(t, e.session(t, "own"), 3, l)
	assert.Equal(t, e.session(t, "orphaned"), "deadsession",
		"a client without a reaper took the lock of a dead session that it does not wait for")
	reports := make(chan reaper.Report, 100)
	with := e.client(t, dblock.WithReaper(reaper.Interval(time.Second),
		reaper.OnReport(func(r reaper.Report) { reports <- r })))
	unlock(t, lock(t, with, "any")) // it runs from the first lock on
	e.free(t, "orphaned")
	if r := within(t, soon, "the reaper reports", reports); r.Expired != 1 || r.Freed != 1 {
		t.Errorf("the reaper reports %v: want 1 session expired and 1 lock freed", r)
	}
}

func exhausted(t *testing.T, e *env) {
	a, c := e.appClient(t, 5)
	l := lock(t, c, "held")
	session := e.session(t, "held")
	e.beats(t, session, 1, l) // the heartbeats' connection is reserved, and soon the one beside it
	// SQLite has no connection to reserve: its pool must have one to spare, for a moment at a time.
	spare := 0
	if e.wiring.Kind == SQLite {
		spare = 1
	}
	var borrowed []func()
	defer func() { // also where the test has failed: the pool waits for them
		for _, giveBack := range borrowed {
			giveBack()
		}
	}()
	// the last may be reserved
	for _, limit := range []time.Duration{soon, soon, soon, 300 * time.Millisecond, 300 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		giveBack, err := a.borrow(ctx)
		cancel()
		if err != nil {
			is(t, err, context.DeadlineExceeded)
			break
		}
		borrowed = append(borrowed, giveBack)
	}
	if len(borrowed) < 3 {
		t.Fatalf("%d connections could be taken: want 3 or more of 5", len(borrowed))
	}
	for range spare {
		borrowed[0]()
		borrowed = borrowed[1:]
	}
	e.beats(t, session, 11, l) // more than two TTLs
	for _, giveBack := range borrowed {
		giveBack()
	}
	borrowed = nil
	live(t, l)
	unlock(t, l)
	e.free(t, "held")
}

// Broken by taking the end of a context for a holder in the way.
func unseen(t *testing.T, e *env) {
	if e.wiring.plain() {
		t.Skip("all work is done on connections that the client has reserved")
	}
	a, c := e.appClient(t, 4)
	unlock(t, lock(t, c, "free"))
	exhaust := func() { t.Cleanup(e.exhaust(t, a)) }
	exhaust()
	for what, try := range map[string]func(ctx context.Context) error{
		"TryLock": func(ctx context.Context) error { l, err := c.TryLock(ctx, "free"); return undone(t, l, err) },
		"Lock":    func(ctx context.Context) error { l, err := c.Lock(ctx, "free"); return undone(t, l, err) },
		"TryLockAll": func(ctx context.Context) error {
			all, err := c.TryLockAll(ctx, []string{"also", "free as well"})
			return undone(t, all, err)
		},
	} {
		says := []string{"the pool gave no connection, all "}
		if what == "TryLockAll" { // on MySQL and MariaDB a connection of the client's own does it, in time or not
			says = append(says, "no answer before the context ended")
		}
		right := func(err error) bool {
			if err == nil {
				return what == "TryLockAll"
			}
			is(t, err, dblock.ErrUnavailable, context.DeadlineExceeded)
			return !errors.Is(err, dblock.ErrNotAcquired) &&
				slices.ContainsFunc(says, func(s string) bool { return strings.Contains(err.Error(), s) })
		}
		for n := 1; ; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			err := try(ctx)
			cancel()
			if right(err) {
				break
			}
			if n == 5 || errors.Is(err, dblock.ErrNotAcquired) {
				t.Errorf("%s: %v: want that one of these is said: %q", what, err, says)
				break
			}
			exhaust() // where the client opens a connection of its own anew, its place in the pool is free meanwhile
		}
	}
}

// undone releases what was granted, and returns the error.
func undone[L interface{ Unlock(context.Context) error }](t *testing.T, l L, err error) error {
	if err == nil {
		require.NoError(t, l.Unlock(brief(t)))
	}
	return err
}

func tenThousand(t *testing.T, e *env) {
	n, workers := int64(10_000), 64
	switch {
	case e.wiring.Kind == SQLite: // which runs in this process, and under the race detector some twenty times slower
		n, workers = 1_000, 8
	case e.wiring.Name != "pgx" && e.wiring.Name != "MySQL":
		// the tables are the same, and making the locks is what takes long
		n = 2_000
	}
	c := e.clientOf(t, e.app(t, 16), dblock.WithoutReaper())
	locks := make(chan *dblock.Lock, n)
	next := make(chan int64)
	failed := make(chan error, workers)
	for range workers {
		go func() {
			var err error
			for i := range next {
				l, lockErr := c.Lock(context.Background(), name(int(i)))
				if lockErr != nil {
					err = errors.Join(err, lockErr)
					continue
				}
				locks <- l
			}
			failed <- err
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range workers {
		require.NoError(t, <-failed)
	}
	held := "SELECT count(*) FROM dblock_locks WHERE session_id IS NOT NULL AND session_id = (SELECT session_id " +
		"FROM dblock_heartbeats)"
	require.Equal(t, e.number(t, held), n, "locks are held, in one session")
	// PostgreSQL tells which rows were written; elsewhere all that can be seen is that there is one
	// row to write.
	written := func() string { return "" }
	if e.wiring.Kind == Postgres {
		written = func() string {
			return e.text(t, "SELECT md5(string_agg(concat(ctid, xmin, xmax), ',' ORDER BY name)) FROM dblock_locks")
		}
	}
	before := written()
	e.beats(t, e.text(t, "SELECT session_id FROM dblock_heartbeats"), 6) // one of them lists what there is
	assert.Equal(t, written(), before, "a heartbeat wrote rows of dblock_locks")
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_heartbeats"), 1, "heartbeats")
	assert.Equal(t, e.number(t, held), n, "locks are held afterwards")
	close(locks)
	for l := range locks {
		live(t, l)
	}
	// Releasing 10,000 locks takes a while: a Close with little time says so, and leaves the rest
	// to the session's end.
	ctx := limited(t, 100*time.Millisecond)
	_ = c.Close(ctx)
}

// beatOutOfOrder has the later of two heartbeats come first, as when a lock has held up both: the
// earlier one counts from a time before.
func beatOutOfOrder(t *testing.T, e *env) {
	b := e.app(t, 5).Backend
	up, err := b.Upkeep(t.Context(), "s")
	require.NoError(t, err)
	defer up.Close()
	for way, beat := range map[string]func(ctx context.Context, session string, ttl time.Duration) (bool, error){
		"on a reserved connection": up.Heartbeat, "over the pool": b.Beat,
	} {
		s := openSession(t, b)
		now := e.now(t)
		for _, ttl := range []time.Duration{4 * time.Hour, 2 * time.Hour} {
			if alive, err := beat(t.Context(), s, ttl); err != nil || !alive {
				t.Fatalf("%s: %v, %v", way, alive, err)
			}
			if left := e.number(t, "SELECT expires_at FROM dblock_heartbeats WHERE session_id = ?",
				s) - now; left < (4 * time.Hour).Microseconds() {
				t.Errorf("%s, a heartbeat with a TTL of %v: the session has %v, want 4h", way, ttl,
					time.Duration(left)*time.Microsecond)
			}
		}
	}
}
