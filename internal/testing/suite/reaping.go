package suite

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/reaper"
)

var reaping = inPlaces(own{
	{"a purge takes what is idle for longer than the retention, and nothing else", retention},
	{"a sweep frees fixed leases that are over, and hands them on", overdue},
	{"a sweep gives back the shares of the dead, and puts it on record if told to", sharesOfTheDead},
	{"a sweep corrects rows that count other waiters and units than there are", recounted},
	{"what is given up goes, whatever the row of its name counts", uncounted},
	{"a sweep frees what sessions without a row have", withoutSession},
	{"a session whose row was deleted lives for as long as it beats", deletedSession},
	{"a ticket that is taken already is no error", ticketTaken},
}, flowing{
	{"a waiter whom the row of the name does not count is served", servedUncounted},
})

func name(i int) string { return fmt.Sprintf("name %05d", i) }

// rows inserts many rows in few statements.
func (e *env) rows(t testing.TB, insert, row string, n int, args func(i int) []any) {
	t.Helper()
	for at := 0; at < n; at += 50 {
		var values []string
		var all []any
		for i := at; i < min(n, at+50); i++ {
			values = append(values, row)
			all = append(all, args(i)...)
		}
		e.exec(t, insert+" VALUES "+strings.Join(values, ", "), all...)
	}
}

func (e *env) orphans(t testing.TB, n int, session string, waiters int) {
	t.Helper()
	now := e.now(t)
	e.rows(t, "INSERT INTO dblock_locks (name, session_id, host, thread, attempt, token, first_token, last_token, "+
		"acquired_at, waiters, next_ticket, metadata)",
		"(?, ?, 'somewhere', 'some thread', ?, ?, ?, ?, ?, ?, 10, '')", n, func(i int) []any {
			return []any{name(i), session, fmt.Sprintf("held%d", i), now, now, now, now, waiters}
		})
}

func (e *env) waiters(t testing.TB, n int, session string, ticket int) {
	t.Helper()
	now := e.now(t)
	e.rows(t, "INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, "+
		"enqueued_at)",
		"(?, ?, ?, 'elsewhere', 'waiting', ?, 0, '', ?)", n, func(i int) []any {
			return []any{name(i), ticket, session, fmt.Sprintf("%s%d", session, i), now}
		})
}

func sweepsAtOnce(t *testing.T, e *env) {
	const n = 200
	e.ghost(t, "deadsession", -time.Second)
	e.ghost(t, "firstinline", time.Hour)
	e.ghost(t, "secondinline", time.Hour)
	e.orphans(t, n, "deadsession", 2)
	e.waiters(t, n, "firstinline", 1)
	e.waiters(t, n, "secondinline", 2)
	before := e.number(t, "SELECT max(token) FROM dblock_locks")
	reports := make([]reaper.Report, 8)
	engine := e.app(t, 8).engine()
	var all sync.WaitGroup
	for i := range reports {
		all.Go(func() {
			var err error
			if reports[i], err = reaper.Sweep(context.Background(), engine); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	var handed, freed int
	for _, r := range reports {
		handed += r.HandedOn
		freed += r.Freed
	}
	// A sweep skips the work that another one is in the middle of. What that one does not finish is
	// left for the next.
	if last, err := reaper.Sweep(context.Background(), engine); err != nil {
		t.Fatal(err)
	} else {
		handed += last.HandedOn
	}
	if handed != n || freed != 0 {
		t.Errorf("%d locks handed on and %d freed, say the reports: want %d and 0: %v", handed, freed, n, reports)
	}
	if got := e.number(t, "SELECT count(*) FROM dblock_locks WHERE session_id = 'firstinline' AND waiters = 1 AND "+
		"token > ?", before); got != n {
		t.Errorf("%d locks went to their first waiter with a higher token: want %d", got, n)
	}
	if got := e.number(t, "SELECT count(*) FROM dblock_waiters WHERE session_id = 'secondinline'"); got != n ||
		e.number(t, "SELECT count(*) FROM dblock_waiters") != n {
		t.Errorf("%d second waiters wait still, and perhaps others: want %d", got, n)
	}
}

func retention(t *testing.T, e *env) {
	const n, old = 30, 10
	c := e.client(t, dblock.WithoutReaper())
	held := lock(t, c, "held")
	waited := lock(t, c, "waited for")
	line := e.line(t, "waited for", 1, []Client{e.client(t, dblock.WithoutReaper())}, background)
	for i := range n {
		unlock(t, lock(t, c, name(i)))
	}
	hour := time.Hour.Microseconds()
	e.exec(t, "UPDATE dblock_locks SET acquired_at = acquired_at - ? WHERE name LIKE 'name%' AND name < ?", 2*hour,
		name(old))
	e.exec(t, "UPDATE dblock_locks SET acquired_at = acquired_at - ? WHERE name IN ('held', 'waited for')", 2*hour)
	e.ghost(t, "longdead", -time.Second)
	e.end(t, "longdead")
	e.exec(t, "UPDATE dblock_sessions SET started_at = started_at - ? WHERE id = 'longdead'", 2*hour)
	e.ghost(t, "justdead", -time.Second)
	e.end(t, "justdead")
	report, err := reaper.Sweep(context.Background(), e.app(t, 2).engine(), reaper.Retention(time.Hour),
		reaper.Batch(3))
	if err != nil || report.Purged != old || report.Forgotten != 1 {
		t.Errorf("swept: %v, %v: want %d rows purged and 1 session forgotten", report, err, old)
	}
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_locks"), n-old+2, "names are left")
	if e.number(t, "SELECT count(*) FROM dblock_locks WHERE name LIKE 'name%' AND name < ?", name(old)) != 0 ||
		e.number(t, "SELECT count(*) FROM dblock_sessions WHERE id = 'justdead'") != 1 {
		t.Error("other rows went than those that were idle for long")
	}
	live(t, held)
	served(t, waited, line...)
	unlock(t, held)
}

func overdue(t *testing.T, e *env) {
	e.ghost(t, "holder", time.Hour)
	e.ghost(t, "waiter", time.Hour)
	e.orphans(t, 3, "holder", 0)
	now := e.now(t)
	e.exec(t, "UPDATE dblock_locks SET expires_at = ? WHERE name = ?", now-1, name(0))
	e.exec(t, "UPDATE dblock_locks SET expires_at = ?, waiters = 1 WHERE name = ?", now-1, name(1))
	e.exec(t, "UPDATE dblock_locks SET expires_at = ? WHERE name = ?", now+time.Hour.Microseconds(), name(2))
	e.exec(t, `INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
		VALUES (?, 1, 'waiter', 'elsewhere', 'waiting', 'a', 0, '{"a":"b"}', ?)`, name(1), now)
	report, err := reaper.Sweep(context.Background(), e.app(t, 2).engine())
	if err != nil || report != (reaper.Report{HandedOn: 1, Freed: 1}) {
		t.Errorf("swept: %v, %v: want 1 lock handed on and 1 freed", report, err)
	}
	for i, want := range []string{"", "waiter", "holder"} {
		assert.Equal(t, e.session(t, name(i)), want, name(i), "is held by")
	}
	assert.Equal(t, e.text(t, "SELECT metadata FROM dblock_locks WHERE name = ?", name(1)), `{"a":"b"}`, "metadata")
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_locks WHERE name = ? AND expires_at IS NULL", name(1)), 1,
		"the next holder inherited the lease")
}

func sharesOfTheDead(t *testing.T, e *env) {
	c := e.client(t, dblock.WithoutReaper())
	kept := lock(t, c, "s", dblock.Permits(1, 3))
	gone := lock(t, e.client(t, dblock.WithoutReaper()), "s", dblock.Permits(2, 3))
	e.end(t, e.text(t, "SELECT session_id FROM dblock_shares WHERE token = ?", gone.Token()))
	report, err := reaper.Sweep(context.Background(), e.app(t, 2).engine(), reaper.Events())
	if err != nil || report.Freed != 1 {
		t.Errorf("%v, %v", report, err)
	}
	assert.Equal(t, e.number(t, "SELECT shared_units FROM dblock_locks WHERE name = 's'"), 1, "units are held")
	assert.Equal(t, e.told(t, c, "s", "expired", 1)[0].Token, gone.Token(), "token")
	live(t, kept)
	unlock(t, kept)
}

// Broken by rows that count wrong for ever: a name that nobody gets, one that a writer gets beside
// its reader, and one that nobody can queue for, since each ticket was given before.
func recounted(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithoutReaper()), e.client(t, dblock.WithoutReaper())
	unlock(t, lock(t, a, "waited for"))
	unlock(t, lock(t, a, "shared"))
	reader := lock(t, a, "read", dblock.Shared())
	held := lock(t, a, "held")
	line := e.line(t, "held", 2, []Client{b}, background)
	e.exec(t, "UPDATE dblock_locks SET waiters = 2 WHERE name = 'waited for'")
	e.exec(t, "UPDATE dblock_locks SET shared_units = 3, capacity = 4 WHERE name = 'shared'")
	e.exec(t, "UPDATE dblock_locks SET shared_units = 0 WHERE name = 'read'")
	// not the number of waiters: their client would correct it first
	e.exec(t, "UPDATE dblock_locks SET next_ticket = next_ticket - 1 WHERE name = 'held'")
	report, err := reaper.Sweep(context.Background(), e.app(t, 2).engine())
	if err != nil || report.Recounted != 4 {
		t.Errorf("swept: %v, %v: want 4 names recounted", report, err)
	}
	unlock(t, lock(t, b, "waited for"))
	unlock(t, lock(t, b, "shared"))
	refused(t, b, "read")
	unlock(t, reader)
	line = append(line, e.line(t, "held", 1, []Client{a}, background)...)
	unlock(t, held)
	for _, next := range line {
		unlock(t, granted(t, patience, next))
	}
	if report, err := reaper.Sweep(context.Background(), e.app(t, 2).engine()); err != nil || report.Recounted != 0 {
		t.Errorf("swept once more: %v, %v", report, err)
	}
}

// Broken by a look at the counters before the look for the row: what they do not count would stay
// for ever.
func uncounted(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithoutReaper()), e.client(t, dblock.WithoutReaper())
	held := lock(t, a, "held")
	ctx, cancel := context.WithCancel(context.Background())
	line := e.line(t, "held", 1, []Client{b}, func(int) context.Context { return ctx })
	e.exec(t, "UPDATE dblock_locks SET waiters = 0 WHERE name = 'held'")
	gone := lock(t, a, "gone")
	line = append(line, e.line(t, "gone", 1, []Client{b}, func(int) context.Context { return ctx })...)
	e.exec(t, "DELETE FROM dblock_locks WHERE name = 'gone'")
	cancel()
	for i, name := range []string{"held", "gone"} {
		is(t, (<-line[i]).err, context.Canceled)
		eventually(t, patience, "the place is gone", func() bool { return e.waiting(t, name) == 0 })
	}
	unlock(t, held)
	is(t, gone.Unlock(context.Background()), dblock.ErrLost)
	reader := lock(t, a, "read", dblock.Shared())
	other := lock(t, b, "read", dblock.Shared())
	e.exec(t, "UPDATE dblock_locks SET shared_units = 0 WHERE name = 'read'")
	unlock(t, reader)
	e.end(t, e.text(t, "SELECT session_id FROM dblock_shares WHERE token = ?", other.Token()))
	assert.NoError(t, assert.ErrOf(reaper.Sweep(context.Background(), e.app(t, 2).engine())))
	eventually(t, patience, "the shares are gone",
		func() bool { return e.number(t, "SELECT count(*) FROM dblock_shares WHERE name = 'read'") == 0 })
}

// Broken by a list of the claims of dead sessions alone: nobody calls Lock or TryLock for these.
func withoutSession(t *testing.T, e *env) {
	a := e.client(t, dblock.WithoutReaper())
	unlock(t, lock(t, a, "held"))
	e.exec(t, "UPDATE dblock_locks SET session_id = 'nobody', attempt = 'late' WHERE name = 'held'")
	shared := lock(t, e.client(t, dblock.WithoutReaper()), "read", dblock.Shared())
	e.exec(t, "UPDATE dblock_shares SET session_id = 'nobody' WHERE token = ?", shared.Token())
	kept := lock(t, a, "waited for")
	line := e.line(t, "waited for", 1, []Client{e.client(t, dblock.WithoutReaper())}, background)
	e.exec(t, "INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, "+
		"enqueued_at) VALUES ('waited for', 0, 'nobody', '', '', 'later', 0, '', ?)", e.now(t))
	e.exec(t, "UPDATE dblock_locks SET waiters = 2 WHERE name = 'waited for'")
	report, err := reaper.Sweep(context.Background(), e.app(t, 2).engine())
	if err != nil || report != (reaper.Report{Freed: 2, Dismissed: 1}) {
		t.Errorf("swept: %v, %v: want 2 locks freed and 1 waiter dismissed", report, err)
	}
	e.free(t, "held")
	unlock(t, lock(t, a, "read"))
	unlock(t, kept)
	unlock(t, granted(t, patience, line[0]))
}

// Broken by taking a missing row for death: the lock would go on while its holder relies on it.
func deletedSession(t *testing.T, e *env) {
	e.needsSQL(t)
	a, b := e.client(t, dblock.WithoutReaper()), e.client(t, dblock.WithoutReaper())
	held := lock(t, a, "n")
	line := e.line(t, "n", 1, []Client{b}, background)
	holder, waiter := e.session(t, "n"), e.text(t, "SELECT session_id FROM dblock_waiters")
	e.exec(t, "DELETE FROM dblock_sessions WHERE id IN (?, ?)", holder, waiter)
	engine := e.app(t, 2).engine()
	eventually(t, patience, "the sessions have a row again", func() bool {
		report, err := reaper.Sweep(context.Background(), engine)
		report.Postponed = 0 // where the client itself has locked the row
		if err != nil || !report.Zero() {
			t.Fatalf("swept: %v, %v: want nothing", report, err)
		}
		return e.number(t, "SELECT count(*) FROM dblock_sessions WHERE id IN (?, ?)", holder, waiter) == 2
	})
	live(t, held)
	unlock(t, held)
	unlock(t, granted(t, patience, line[0]))
}

// Broken by a look that believes the counters: the row was deleted by hand, and another client has
// made it anew, and released it.
func servedUncounted(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithoutReaper()), e.client(t, dblock.WithoutReaper())
	held := lock(t, a, "n")
	line := e.line(t, "n", 2, []Client{b, e.client(t, dblock.WithoutReaper())}, background)
	e.exec(t, "UPDATE dblock_locks SET session_id = NULL, attempt = '', waiters = 0, next_ticket = 1 WHERE name = 'n'")
	for _, next := range line {
		unlock(t, granted(t, patience, next))
	}
	ended(t, patience, held, dblock.ErrLost)
}

// Broken by the error of a key that is there: the row that was made anew begins to count at 1.
func ticketTaken(t *testing.T, e *env) {
	e.needsSQL(t)
	a, b := e.client(t, dblock.WithoutReaper()), e.client(t, dblock.WithoutReaper())
	held := lock(t, a, "n")
	line := e.line(t, "n", 2, []Client{b}, background)
	e.exec(t, "UPDATE dblock_locks SET waiters = 0, next_ticket = 1 WHERE name = 'n'")
	line = append(line, e.line(t, "n", 1, []Client{e.client(t, dblock.WithoutReaper())}, background)...)
	served(t, held, line...)
}
