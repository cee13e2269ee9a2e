package suite

import (
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	internals "github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// clocks are the clock of a test's database and that of its clients, which move together. Both are
// real time, plus what advance has added.
type clocks struct {
	clock *clock.Movable
	set   func(t testing.TB, ahead time.Duration) // moves the database's

	moving sync.Mutex // one advance at a time; protects ahead
	ahead  time.Duration

	mu       sync.Mutex // protects sessions, and what is in it
	sessions map[*watched]bool
}

// watched is a session of a client, until all that it held is over.
type watched struct {
	*session.Session
	ttl  time.Duration
	lost chan struct{}
	deaf bool // no heartbeat of it was answered, or failed, in settleLimit
}

// settleLimit is how long advance waits in real time for a heartbeat that is due.
const settleLimit = 20 * time.Second

// mover is an engine whose database moves the clocks itself.
type mover interface {
	Timed(c *internals.Config)
	Advance(by time.Duration)
	Pause(by time.Duration) (resume func())
	Micros() int64 // of the database's clock, since 1970
}

// movable has the clock of a database read by how much the test has moved it.
func movable(t testing.TB, db dbtest.Database) {
	switch db.Kind {
	case Postgres: // what is read of a sequence is the latest, whatever the snapshot, and a new value changes no plan
		db.Exec(t, "CREATE SEQUENCE test_ahead MINVALUE 0", "SELECT setval('test_ahead', 0)",
			`CREATE OR REPLACE FUNCTION dblock_now() RETURNS bigint LANGUAGE sql VOLATILE AS
			$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + pg_sequence_last_value('public.test_ahead') $$`)
	case SQLite:
		db.Exec(t, "DROP VIEW dblock_clock", `CREATE VIEW dblock_clock AS
			SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + `+
			SQLiteAheadName+`('`+db.DSN+`') AS now_us`)
	default:
		// The table has no rows that could be locked, and no snapshots. It only grows: MyISAM
		// appends beside statements that read, however long these wait for a row of another table.
		db.Exec(t, "CREATE TABLE test_ahead (us bigint NOT NULL PRIMARY KEY) ENGINE = MyISAM",
			"INSERT INTO test_ahead VALUES (0)",
			`CREATE OR REPLACE SQL SECURITY INVOKER VIEW dblock_clock AS
			SELECT CAST(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + (SELECT MAX(us) FROM test_ahead) AS SIGNED) AS now_us`)
	}
}

// move readies a movable database for advance. On SQLite key is the data source that movable had.
// move MUST be called before anything uses the database.
func (e *env) move(t testing.TB, key string) {
	t.Helper()
	e.clocks = &clocks{clock: clock.NewMovable(), sessions: map[*watched]bool{}}
	if e.wiring.Through != nil {
		return
	}
	back := func() {}
	switch e.wiring.Kind {
	case Postgres:
		e.clocks.set = func(t testing.TB, ahead time.Duration) {
			e.exec(t, "SELECT setval('public.test_ahead', ?)", ahead.Microseconds())
		}
		back = func() { e.db.Exec(t, "SELECT setval('public.test_ahead', 0)") }
	case SQLite:
		e.clocks.set = func(_ testing.TB, ahead time.Duration) { sqliteAhead.Store(key, ahead.Microseconds()) }
	default:
		if e.wiring.Kind == TiDB { // which keeps what it has read of the view with the plan of a prepared statement
			e.db.DSN = Params("no plans", "tidb_enable_prepared_plan_cache", "0").DSN(e.db.DSN)
		}
		e.clocks.set = func(t testing.TB, ahead time.Duration) {
			e.exec(t, "INSERT INTO test_ahead VALUES (?)", ahead.Microseconds())
		}
		back = func() { e.db.Exec(t, "DELETE FROM test_ahead WHERE us > 0") }
	}
	t.Cleanup(back) // for the next test in this database
}

// SQLiteAheadName is a function of SQL that a wiring of SQLite has on every connection: with one
// argument, SQLiteAhead. Its result changes, so that it is not deterministic.
const SQLiteAheadName = "test_ahead"

// SQLiteAhead is by how many microseconds the clock of a database is ahead of the machine's.
func SQLiteAhead(database string) int64 {
	us, _ := sqliteAhead.Load(database)
	n, _ := us.(int64)
	return n
}

var sqliteAhead sync.Map // of int64

// timed are the options of a client of a moving test.
func (e *env) timed(a App) []dblock.Option {
	if e.clocks == nil {
		return nil
	}
	set := func(c *internals.Config) {
		c.Clock = e.clocks.clock
		c.Opened = func(s *session.Session) (lost func()) { return e.clocks.opened(s, c.TTL) }
	}
	if a.mover != nil {
		set = a.mover.Timed
	}
	return []dblock.Option{*inside.Make[dblock.Option](set)}
}

func (m *clocks) opened(s *session.Session, ttl time.Duration) (lost func()) {
	w := &watched{Session: s, ttl: ttl, lost: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[w] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.sessions, w)
		close(w.lost)
	}
}

// advance lets time go on for the test's database and all its clients: whatever these do meanwhile
// happens in order. Clients that reach the database send their heartbeats, so that their locks stay
// theirs. Of the others the sessions end, and then their locks go to those who wait.
//
// The database goes first, by no more than to the next moment at which a client loses something.
// So it is never ahead by what a client's trust has as its margin, and what a client asks for
// counts from before the database's answer.
func (e *env) advance(t testing.TB, by time.Duration) {
	t.Helper()
	if e.clocks == nil {
		t.Fatal("a test that moves the clock stands in the list of those")
	}
	if e.wiring.Through != nil {
		e.app(t, 1).mover.Advance(by)
		return
	}
	m := e.clocks
	m.moving.Lock()
	defer m.moving.Unlock()
	for left := by; left > 0; {
		step := m.step(left)
		m.ahead += step
		m.set(t, m.ahead)
		m.clock.Move(step)
		left -= step
		m.settle(t)
	}
}

// alive are the sessions that have not ended.
func (m *clocks) alive() (all []*watched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.sessions {
		all = append(all, w)
	}
	return all
}

// step is how far the clocks may go at once: half of a heartbeat's interval, and to the end of a
// lease or of the trust in a session.
func (m *clocks) step(most time.Duration) time.Duration {
	now := m.clock.Now()
	most = min(most, m.clock.NextAlarm())
	for _, w := range m.alive() {
		most = min(most, w.ttl/10, w.Deadline()-now)
	}
	return max(most, time.Millisecond)
}

// settle waits until the heartbeats that are due have been answered or have failed, and until none
// of a session has been missing for long, and sessions that are over have ended.
func (m *clocks) settle(t testing.TB) {
	for _, w := range m.alive() {
		limit := time.Now().Add(settleLimit)
		for tick := time.Millisecond / 8; ; tick = min(2*tick, 5*time.Millisecond) {
			now := m.clock.Now()
			over := w.Context().Err() != nil || w.Deadline() <= now
			late := !over && (now-w.Tried() > w.ttl/5+50*time.Millisecond || w.Deadline()-now < w.ttl/2)
			switch {
			case !over && !late:
				w.deaf = false
			case over:
				within(t, patience, "a session that is over has ended, with its locks", w.lost)
			case w.deaf:
			case time.Now().After(limit):
				w.deaf = true
				t.Logf("no heartbeat of session %s was answered or failed within %v", w.ID, settleLimit)
			default:
				time.Sleep(tick)
				continue
			}
			break
		}
	}
}

// pause lets time go on for the clients alone, and for none of their timers until resume is called.
func (e *env) pause(t testing.TB, by time.Duration) (resume func()) {
	if e.wiring.Through != nil {
		return e.app(t, 1).mover.Pause(by)
	}
	return e.clocks.clock.Pause(by)
}

// How time flows: a TTL of longTTL takes some 300 ms.
const (
	flowStep  = time.Second
	flowPause = 10 * time.Millisecond
)

// flow advances all the time, until the test ends. Clients keep up with it: see settle.
func (e *env) flow(t testing.TB) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(flowPause):
				e.advance(t, flowStep)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

// advanceUntil lets time go on, a second at a time, until a condition holds; for at most so long.
func (e *env) advanceUntil(t testing.TB, most time.Duration, what string, so func() bool) {
	t.Helper()
	for gone := time.Duration(0); ; gone += time.Second {
		for range 10 { // what time has woken may still be at work
			if so() {
				return
			}
			time.Sleep(3 * time.Millisecond)
		}
		if gone >= most {
			break
		}
		e.advance(t, time.Second)
	}
	eventually(t, patience, what, so)
}
