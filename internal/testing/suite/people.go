package suite

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var people = inPlaces(own{
	{"dblock_who and dblock_queue show what Inspect shows", whoAndQueue},
	{"candidates of an election are marked, and are no contention", candidates},
	{"dblock_who tells the kinds of holders apart", whoKinds},
	{"dblock_who shows until when a lock lasts, and which holders are dead", whoAlive},
	{"dblock_who and dblock_queue show a cohort as one holder, or one place, and count its members", whoCohort},
})

// whoRow is a row of dblock_who, with its times in microseconds.
type whoRow struct {
	kind, host, thread, app, session string
	pid, token, waiters              int64
	since, until                     int64
	units                            sql.NullInt64
	wait                             sql.NullFloat64 // seconds
	alive                            bool
}

// queueRow is a row of dblock_queue.
type queueRow struct {
	kind, host, thread, app, session string
	place, ticket, pid, since        int64
	members                          int64
	units                            sql.NullInt64
	alive, candidate                 bool
}

// micros reads a timestamp of a view.
func (e *env) micros(column string) string {
	switch e.wiring.Kind {
	case Postgres:
		return "coalesce((extract(epoch FROM " + column + ") * 1000000)::bigint, 0)"
	case SQLite:
		return "coalesce(CAST(round((julianday(" + column + ") - 2440587.5) * 86400000.0) AS INTEGER) * 1000, 0)"
	}
	return "COALESCE(CAST(UNIX_TIMESTAMP(`" + column + "`) * 1000000 AS SIGNED), 0)" // until is a word of TiDB's
}

// who reads dblock_who for a name, in the order of the tokens.
func (e *env) who(t testing.TB, name string) (rows []whoRow) {
	t.Helper()
	wait := "longest_wait"
	if e.wiring.Kind == Postgres {
		wait = "extract(epoch FROM longest_wait)"
	}
	e.each(t, "SELECT kind, units, host, thread, pid, app, session, token, "+e.micros("since")+", "+e.micros("until")+
		", alive, waiters, "+wait+" FROM dblock_who WHERE name = ? ORDER BY token", name, func(scan func(...any)) {
		var r whoRow
		scan(&r.kind, &r.units, &r.host, &r.thread, &r.pid, &r.app, &r.session, &r.token, &r.since, &r.until, &r.alive,
			&r.waiters, &r.wait)
		rows = append(rows, r)
	})
	return rows
}

// queue reads dblock_queue for a name, in the order of the tickets.
func (e *env) queue(t testing.TB, name string) (rows []queueRow) {
	t.Helper()
	e.each(t, "SELECT place, ticket, kind, units, host, thread, pid, app, session, "+e.micros("since")+
		", alive, members, candidate FROM dblock_queue WHERE name = ? ORDER BY ticket", name, func(scan func(...any)) {
		var r queueRow
		scan(&r.place, &r.ticket, &r.kind, &r.units, &r.host, &r.thread, &r.pid, &r.app, &r.session, &r.since, &r.alive,
			&r.members, &r.candidate)
		rows = append(rows, r)
	})
	return rows
}

// each calls f for each row of a query with one argument.
func (e *env) each(t testing.TB, query, arg string, f func(scan func(...any))) {
	t.Helper()
	rows, err := e.look.QueryContext(t.Context(), e.db.Text(query), arg)
	require.NoError(t, err, query)
	defer rows.Close()
	for rows.Next() {
		f(func(into ...any) { require.NoError(t, rows.Scan(into...), query) })
	}
	require.NoError(t, rows.Err())
}

func whoAndQueue(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithApp("app a")), e.client(t, dblock.WithApp("app b"))
	const name = "who/ä"
	if rows := e.who(t, name); len(rows) > 0 {
		t.Errorf("of a name that nobody used: %+v", rows)
	}
	l := lock(t, a, name, dblock.Owner("host", "thread"))
	if rows := e.who(t, name); len(rows) != 1 || rows[0].waiters != 0 || rows[0].wait.Valid {
		t.Errorf("without waiters: %+v", rows)
	}
	began := time.Now()
	waiters := []<-chan outcome{}
	for i, options := range [][]dblock.LockOption{nil, {dblock.Permits(2, 3)}, nil} {
		waiters = append(waiters, locking(context.Background(), b, name, options...))
		e.queued(t, name, i+1)
	}
	info, err := b.Inspect(t.Context(), name)
	if err != nil || len(info.Holders) != 1 || len(info.Waiters) != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
	rows, queue := e.who(t, name), e.queue(t, name)
	if len(rows) != 1 || len(queue) != 3 {
		t.Fatalf("%+v, %+v", rows, queue)
	}
	h, r := info.Holders[0], rows[0]
	if r.kind != "exclusive" || r.units.Valid || r.host != "host" || r.thread != "thread" || r.app != "app a" ||
		r.pid != int64(h.PID) ||
		r.session != e.session(t, name) || r.token != l.Token() || !r.alive || r.waiters != 3 ||
		r.since != h.Since.UnixMicro() {
		t.Errorf("%+v is not %+v", r, h)
	}
	if left := time.Duration(r.until-e.now(t)) * time.Microsecond; left < longTTL/2 || left > longTTL {
		t.Errorf("it lasts for another %v", left)
	}
	if wait := r.wait.Float64; wait <= 0 || wait > time.Since(began).Seconds() {
		t.Errorf("the first has waited for %v s", wait)
	}
	for i, q := range queue {
		w := info.Waiters[i]
		kind, units := "exclusive", sql.NullInt64{}
		if i == 1 {
			kind, units = "permits", sql.NullInt64{Int64: 2, Valid: true}
		}
		if q.place != int64(i+1) || q.kind != kind || q.units != units || q.host != w.Host || q.thread != w.Thread ||
			q.app != "app b" ||
			q.pid != int64(w.PID) || q.session == "" || q.since != w.Since.UnixMicro() || !q.alive || q.members != 1 ||
			q.candidate || w.Candidate ||
			i > 0 && q.ticket <= queue[i-1].ticket {
			t.Errorf("%+v is not %+v", q, w)
		}
	}
	unlock(t, l)
	for _, w := range waiters {
		unlock(t, granted(t, soon, w))
	}
	e.free(t, name)
	if rows, queue := e.who(t, name), e.queue(t, name); len(rows)+len(queue) > 0 {
		t.Errorf("of a free name: %+v, %+v", rows, queue)
	}
}

func candidates(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	const name = "election"
	ctx, cancel := context.WithCancel(t.Context())
	leads := make(chan struct{}, 1)
	var campaigns sync.WaitGroup
	defer campaigns.Wait()
	defer cancel()
	lead := func(ctx context.Context, _ *election.Term) error {
		select {
		case leads <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil
	}
	campaign := func(c Client, options ...election.Option) {
		campaigns.Go(func() { assert.NoError(t, election.New(c.Client).Campaign(ctx, name, lead, options...)) })
	}
	campaign(a)
	<-leads
	for i, options := range [][]election.Option{nil, {election.Metadata(map[string]string{"k": "v"})}, nil} {
		campaign(b, options...)
		e.queued(t, name, i+1)
	}
	shows := func(waiters int64, contended string) {
		t.Helper()
		info, err := b.Inspect(t.Context(), name)
		require.NoError(t, err)
		queue := e.queue(t, name)
		if len(queue) != 3+int(waiters) || len(info.Waiters) != len(queue) || info.Queued != len(queue) {
			t.Fatalf("%+v, %+v", info, queue)
		}
		for i, q := range queue {
			if q.candidate != (i < 3) || info.Waiters[i].Candidate != q.candidate || q.members != 1 {
				t.Errorf("place %d: %+v, %+v", i+1, q, info.Waiters[i])
			}
		}
		if s := b.Stats(); s.Candidates != 3 || s.Waiting != int(waiters) {
			t.Errorf("%+v: want 3 candidates, %d waiting", s, waiters)
		}
		who := e.who(t, name)
		if len(who) != 1 || who[0].waiters != waiters || who[0].wait.Valid != (waiters > 0) {
			t.Errorf("%+v: want %d waiters", who, waiters)
		}
		for _, f := range []inspect.Filter{{Contended: true}, {Contended: true, Host: info.Holders[0].Host}} {
			assert.Equal(t, namesOf(all(t, b.List(t.Context(), f))), contended, f)
		}
	}
	shows(0, "")
	waiter := e.waiter(t, b, name)
	shows(1, name)
	cancel()
	unlock(t, granted(t, soon, waiter))
}

func whoKinds(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	for kind, options := range map[string][]dblock.LockOption{"shared": {dblock.Shared()},
		"permits": {dblock.Permits(2, 5)}} {
		first, second := lock(t, a, kind, options...), lock(t, b, kind, options...)
		writer := e.waiter(t, a, kind)
		behind := e.waiter(t, a, kind, options...)
		units := int64(1)
		if kind == "permits" {
			units = 2
		}
		rows := e.who(t, kind)
		if len(rows) != 2 || rows[0].token != first.Token() || rows[1].token != second.Token() {
			t.Fatalf("%+v", rows)
		}
		for _, r := range rows {
			if r.kind != kind || r.units.Int64 != units || !r.alive || r.waiters != 2 || r.session == "" ||
				r.since == 0 || r.until == 0 {
				t.Errorf("%+v", r)
			}
		}
		if rows[0].session == rows[1].session {
			t.Error("both are of one session")
		}
		if q := e.queue(t, kind); len(q) != 2 || q[0].kind != "exclusive" || q[1].kind != kind ||
			q[1].units.Int64 != units {
			t.Errorf("%+v", q)
		}
		unlock(t, first)
		unlock(t, second)
		unlock(t, granted(t, soon, writer))
		unlock(t, granted(t, soon, behind))
	}
}

func whoAlive(t *testing.T, e *env) {
	a := e.client(t, dblock.WithoutReaper())
	const short = 20 * time.Second // less than the TTL
	fixed, share := lock(t, a, "fixed", dblock.Lease(short)), lock(t, a, "share", dblock.Shared(), dblock.Lease(short))
	for _, l := range []*dblock.Lock{fixed, share} {
		if r := e.who(t, l.Name())[0]; r.until > r.since+short.Microseconds()+1000 || r.until < r.since || !r.alive {
			t.Errorf("%s: %+v does not end with its lease", l.Name(), r)
		}
		for _, table := range []string{"dblock_locks", "dblock_shares"} {
			e.exec(t, "UPDATE "+table+" SET expires_at = ? WHERE name = ? AND expires_at IS NOT NULL",
				e.now(t)-1_000_000, l.Name())
		}
		if r := e.who(t, l.Name())[0]; r.alive {
			t.Errorf("%s: %+v is alive after its lease", l.Name(), r)
		}
	}
	e.orphan(t, "expired", "gone", -time.Second)
	if r := e.who(t, "expired")[0]; r.alive || r.until > e.now(t) || r.app != "ghost" {
		t.Errorf("%+v", r)
	}
	e.orphan(t, "dead", "dead", time.Hour)
	e.end(t, "dead")
	if r := e.who(t, "dead")[0]; r.alive || r.until != 0 {
		t.Errorf("%+v", r)
	}
	e.orphan(t, "n", "holder", time.Hour)
	e.ghost(t, "waiter", -time.Second)
	e.exec(t, "UPDATE dblock_locks SET waiters = 1 WHERE name = 'n'")
	e.exec(t, `INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
		VALUES ('n', 1, 'waiter', 'h', 't', 'a', 0, '', ?)`, e.now(t))
	if q := e.queue(t, "n"); len(q) != 1 || q[0].alive || q[0].place != 1 {
		t.Errorf("%+v", q)
	}
}

func whoCohort(t *testing.T, e *env) {
	b := e.app(t, 5).Backend
	s, x := openSession(t, b), openSession(t, b)
	asks := func(session string, members int) protocol.Request {
		return protocol.Request{Name: "n", Session: session, Host: "h", Attempt: id(), Members: members, Patient: true}
	}
	g, taken, err := drivertest.Take(brief(t), b, asks(s, 3))
	require.NoError(t, err)
	require.Equal(t, taken, true, "the free name was taken")
	for _, members := range []int{2, 1} {
		_, outcome, err := drivertest.Join(brief(t), b, asks(x, members))
		require.NoError(t, err)
		require.Equal(t, outcome, protocol.Queued)
	}
	rows, queue := e.who(t, "n"), e.queue(t, "n")
	if len(rows) != 1 || rows[0].kind != "cohort" || rows[0].session != s || rows[0].token != g.Token ||
		rows[0].waiters != 3 || !rows[0].wait.Valid {
		t.Errorf("%+v", rows)
	}
	if len(queue) != 2 {
		t.Fatalf("%+v", queue)
	}
	for i, members := range []int64{2, 1} {
		if q := queue[i]; q.place != int64(i)+1 || q.session != x || q.members != members || q.kind != "exclusive" ||
			!q.alive {
			t.Errorf("%+v", q)
		}
	}
}
