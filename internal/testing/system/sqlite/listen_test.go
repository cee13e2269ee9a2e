package sqlite_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// listener listens for a session, and tells what it heard.
type listener struct {
	*drivertest.Listener
	t *testing.T
}

func (f *fixture) listen(session string) listener {
	f.t.Helper()
	return listener{drivertest.Hear(f.t, f, session).Started(), f.t}
}

// inboxless keeps inboxes from being made beside the database, as where the folder cannot be
// written.
func (f *fixture) inboxless() {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.path+"-dblock", nil, 0o600))
}

// lookInterval is how often a listener without an inbox looks.
const lookInterval = 10 * time.Millisecond

// hears waits for a hint.
func (l listener) hears(want string) {
	l.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case h := <-l.Hints:
			if h.Attempt == want {
				return
			}
		case <-timeout:
			l.t.Fatalf("%q was not heard", want)
		}
	}
}

func TestAGrantRingsItsSessionInTheSameProcess(t *testing.T) {
	f := newFixture(t)
	other := open(t, f.path, "") // a pool of its own
	for _, granter := range []*fixture{f, other} {
		a, b, c := granter.session(), f.session(), f.session()
		l := f.listen(b)
		f.listen(c)
		held := granter.take("n", a)
		attempt := f.enqueue("n", b)
		granter.release(held, true)
		l.hears(attempt)

		r := request("n", a)
		r.Thread = b
		back, err := driver.Do(t.Context(), granter, protocol.Reenter{Request: r})
		if err != nil || !back.Done() {
			t.Fatal(back, err)
		}
		l.hears(attempt) // it lost the lock

		attempt = f.enqueue("n", b)
		require.NoError(t, require.ErrOf(drivertest.Undo(t.Context(), granter, a, "n", r.Attempt)))
		l.hears(attempt)
		f.lapse(b)
		holder := f.look(c, "n").Holder
		attempt = f.enqueue("n", c)
		lc := f.listen(c)
		if _, taken, err := drivertest.TakeOver(t.Context(), granter, a, "n", holder); err != nil || !taken {
			t.Fatal(taken, err)
		}
		lc.hears(attempt)
		f.exec("DELETE FROM dblock_locks")
	}
}

func TestAGrantToTheOneWhoAsksRingsNobody(t *testing.T) {
	f := newFixture(t)
	s := f.session()
	l := f.listen(s)
	held := f.take("n", s)
	attempt := f.enqueue("n", s)
	if next := f.release(held, true); next.Attempt != attempt {
		t.Fatalf("%+v", next)
	}
	select {
	case got := <-l.Hints:
		if got.Attempt == attempt {
			t.Fatal("rung")
		}
	case <-time.After(5 * lookInterval):
	}
}

func TestAListenerWithoutABoxHearsEveryGrantOfAnotherProcess(t *testing.T) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			f := newFixtureIn(t, journal)
			f.inboxless()
			one := open(t, f.path, "")
			one.pool.SetMaxOpenConns(1)
			for _, pair := range [][2]*fixture{
				{f, one},   // through another pool
				{f, f},     // through its own
				{one, one}, // through the connection with which it looks
			} {
				s := f.session()
				f.take(s, s)
				f.enqueue(s, s) // whoever waits for nothing hears late
				l := pair[0].listen(s)
				for range 20 {
					// A change by another process wakes no listener here.
					pair[1].exec("UPDATE dblock_heartbeats SET grants = grants + 1 WHERE session_id = ?", s)
					l.hears("")
				}
			}
		})
	}
}

func TestWhatConcernsOthersWakesNobody(t *testing.T) {
	f := newFixture(t)
	s, a, b := f.session(), f.session(), f.session()
	f.take("other", a)
	f.enqueue("other", s) // so that it looks
	l := f.listen(s)
	for range 20 {
		held := f.take("n", a)
		f.enqueue("n", s)
		f.enqueue("n", b)
		f.exec("DELETE FROM dblock_waiters WHERE session_id = ? AND name = 'n'", s)
		next := f.release(held, true)
		f.release(protocol.Held{Name: "n", Session: b, Token: next.Grant.Token}, false)
		f.heartbeat(s, true)
		f.exec("UPDATE dblock_locks SET waiters = 0, metadata = metadata || 'x' WHERE name = 'n'")
	}
	select {
	case got := <-l.Hints:
		t.Fatalf("heard %+v", got)
	case <-time.After(5 * lookInterval):
	}
}

func TestAListenerIsNotStarvedByABusyPoolOfOne(t *testing.T) {
	f := newFixture(t)
	f.pool.SetMaxOpenConns(1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 30 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = f.pool.ExecContext(ctx, "SELECT count(*) FROM dblock_locks")
			}
		})
	}
	takeTurnsWithAChild(t, f, 10)
}

func TestNoWakeUpIsLostBetweenTwoProcesses(t *testing.T) {
	rounds := soaked(60, 2000)
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			f := newFixtureIn(t, journal)
			mine, theirs := takeTurnsWithAChild(t, f, rounds)
			reportTurns(t, mine, theirs)
		})
	}
}

// takeTurnsWithAChild lets this process and another hand a lock to and fro, from the moment when
// both wait for it.
func takeTurnsWithAChild(t *testing.T, f *fixture, rounds int) (mine, theirs []turn) {
	t.Helper()
	held := f.take(ball, f.session())
	finished := start(t, "turns", f.path, rounds)
	ended := make(chan error, 1)
	go func() {
		var err error
		mine, err = takeTurns(t.Context(), f.pool, rounds)
		ended <- err
	}()
	dbtest.Eventually(t, "both to wait", func() bool { return f.look("", ball).Waiters == 2 })
	f.release(held, true)
	assert.NoError(t, <-ended)
	finished(&theirs)
	return mine, theirs
}

// reportTurns checks that turns did not overlap, and logs how long it took from release to grant
// between processes.
func reportTurns(t *testing.T, mine, theirs []turn) {
	t.Helper()
	whose := map[int64]bool{}
	for _, turn := range mine {
		whose[turn.Token] = true
	}
	all := slices.Concat(mine, theirs)
	slices.SortFunc(all, func(a, b turn) int { return cmp.Compare(a.Token, b.Token) })
	var took []time.Duration
	for i, next := range all[1:] {
		before := all[i]
		if next.Token == before.Token || next.Granted < before.Released {
			t.Fatalf("%+v and %+v overlap", before, next)
		}
		if whose[before.Token] != whose[next.Token] {
			took = append(took, time.Duration(next.Granted-before.Released))
		}
	}
	slices.Sort(took)
	if len(took) < len(all)-3 {
		t.Fatalf("only %d hand-offs between the processes", len(took))
	}
	t.Logf("%d hand-offs between processes: p50 %v, p99 %v, most %v", len(took), took[len(took)/2],
		took[len(took)*99/100], took[len(took)-1])
}

func TestEightWritersInTwoProcessesWithoutABusyTimeout(t *testing.T) {
	rounds := soaked(4, 200)
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			f := newFixtureIn(t, journal)
			f.exec("CREATE TABLE count (n integer NOT NULL, token integer NOT NULL)")
			f.exec("INSERT INTO count VALUES (0, 0)")
			finished := start(t, "count", f.path, rounds)
			assert.NoError(t, countTogether(t.Context(), f.pool, rounds))
			finished(new(any))
			if n := f.number("SELECT n FROM count"); n != int64(8*rounds) {
				t.Fatalf("counted to %d, want %d", n, 8*rounds)
			}
		})
	}
}

func TestAChangeIsHeardByAllWhoWatchInAnyProcess(t *testing.T) {
	f := newFixture(t)
	f.inboxless()
	s, distant := f.session(), f.session()
	near, far := f.listen(s), f.listen(distant)
	require.NoError(t, errors.Join(f.Watch(t.Context(), s, "n", "near"), f.Watch(t.Context(), distant, "n", "far")))
	for _, name := range []string{"n", "another"} {
		require.NoError(t, require.ErrOf(f.Run(t.Context(), protocol.Announce{Held: f.take(name, s)})))
	}
	near.hears("near")
	far.hears("far")
	// A change by another process wakes no listener here.
	f.exec("UPDATE dblock_heartbeats SET grants = grants + 1 WHERE session_id = ?", s)
	near.hears("")
}
