package sqlite_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// lost are the steps that may be lost with the machine. Each returns nothing to be released.
var lost = map[string]func(f *fixture, s string){
	"take and release": func(f *fixture, s string) { f.release(f.take("a", s), false) },
	"take and release of a share": func(f *fixture, s string) {
		held := f.share(shared("b", s, 1, 2))
		f.release(held, false)
	},
	"join, hand-over and takeover": func(f *fixture, s string) {
		other := f.session()
		held := f.take("c", s)
		f.enqueue("c", other)
		if next := f.release(held, true); next.Session != other {
			f.t.Fatalf("%+v", next)
		}
		f.lapse(other)
		if _, taken, err := drivertest.TakeOver(f.t.Context(), f, s, "c", f.look(s, "c").Holder); err != nil || !taken {
			f.t.Fatal(taken, err)
		}
	},
	"undo": func(f *fixture, s string) {
		f.take("d", s)
		attempt := f.enqueue("d", s)
		require.NoError(f.t, require.ErrOf(drivertest.Undo(f.t.Context(), f, s, "d", attempt)))
	},
	"a batch": func(f *fixture, s string) {
		grants, _, err := drivertest.Batch(f.t.Context(), f, []protocol.Request{request("e", s)}, nil)
		if err != nil || len(grants) != 1 {
			f.t.Fatal(grants, err)
		}
		rest, err := drivertest.ReleaseAll(f.t.Context(), f,
			[]protocol.Held{{Name: "e", Session: s, Token: grants[0].Token}})
		if err != nil || len(rest) > 0 {
			f.t.Fatal(rest, err)
		}
	},
}

// kept are those that the application's setting decides about.
var kept = map[string]func(f *fixture, s string){
	"heartbeat": func(f *fixture, s string) { f.heartbeat(s, true) },
	"history": func(f *fixture, _ string) {
		require.NoError(f.t, f.Record(f.t.Context(), []protocol.Event{{Name: "n", Kind: "note"}}))
	},
	"a run": func(f *fixture, s string) {
		_, ours, err := f.BeginRun(f.t.Context(), driver.Run{Name: "n", Token: 1, Session: s},
			driver.Slot{Length: time.Hour}, driver.Retry{})
		if err != nil || !ours {
			f.t.Fatal(ours, err)
		}
	},
	"a take with a rest": func(f *fixture, s string) {
		r := request("rests", s)
		r.MinHold = time.Hour
		f.share(r)
	},
}

// levelsOf runs a step, and returns how its commits were made, without those of the sessions that
// it opens.
func (p *power) levelsOf(f *fixture, step func(f *fixture, s string)) []int64 {
	s := f.session()
	p.levels = nil
	step(f, s)
	return slices.Compact(p.levels)
}

// Broken by NORMAL in place of OFF, NORMAL or EXTRA, or with a rollback journal, where it can break
// the file; and by a connection that stays so.
func TestWhatMayBeLostWithTheMachineDoesNotWaitForTheDiskInWALMode(t *testing.T) {
	for _, c := range []struct {
		journal, level string
		set, lost      int64
	}{
		{"wal", "FULL", 2, 1},
		{"wal", "EXTRA", 3, 3},
		{"wal", "NORMAL", 1, 1},
		{"wal", "OFF", 0, 0},
		{"delete", "FULL", 2, 2},
		{"wal", "FULL)&cache=shared&_pragma=temp_store(0", 2, 2}, // one pager for all connections
	} {
		t.Run(c.journal+" "+c.level, func(t *testing.T) {
			f, p := onPower(t, c.journal, c.level)
			f.take("first", f.session()) // from now on it knows of the caches
			f.pool.SetMaxOpenConns(1)
			check := func(what string, step func(f *fixture, s string), want int64) {
				t.Helper()
				levels := p.levelsOf(f, step)
				if len(levels) == 0 || slices.ContainsFunc(levels, func(l int64) bool {
					return l != want && l != c.set
				}) || !slices.Contains(levels, want) {
					t.Errorf("%s: committed with synchronous=%v, want %d", what, levels, want)
				}
				assert.Equal(t, f.number("PRAGMA main.synchronous"), c.set, what,
					"the connection is left with synchronous=")
				assert.Equal(t, f.number("PRAGMA busy_timeout"), 5000, what,
					"the connection is left with busy_timeout=")
			}
			for what, step := range lost {
				check(what, step, c.lost)
			}
			for what, step := range kept {
				check(what, step, c.set)
			}
		})
	}
}

// Broken by NORMAL for all that hands a name on.
func TestABreakIsOnTheDiskWithItsEntryInTheHistory(t *testing.T) {
	f, p := onPower(t, "wal", "FULL")
	f.take("n", f.session())
	s := f.session()
	p.levels = nil
	_, taken, err := drivertest.Break(t.Context(), f, s, "n", f.look(s, "n").Holder,
		protocol.Event{Name: "n", Kind: "broken"})
	if err != nil || !taken || !slices.Equal(p.levels, []int64{full}) {
		t.Fatal(taken, err, p.levels)
	}
}

// The rest of a name is for those who come after the machine's crash. The one of a waiter is seen
// when it is handed the name.
func TestAHandOverToAWaiterWithARestIsOnTheDisk(t *testing.T) {
	f, p := onPower(t, "wal", "FULL")
	s := f.session()
	held := f.take("n", s)
	r := request("n", s)
	r.MinHold = time.Hour
	f.queue(r)
	p.levels = nil
	if next := f.release(held, true); next.Attempt != r.Attempt || !slices.Equal(p.levels, []int64{full}) {
		t.Fatal(next, p.levels)
	}
}

// Broken by a restoring that fails and is not heeded: the application's commits would not wait.
func TestAConnectionWhoseSettingCannotBePutBackIsThrownAway(t *testing.T) {
	f, p := onPower(t, "wal", "FULL")
	s := f.session()
	f.take("first", s) // from now on it knows of the caches
	f.pool.SetMaxOpenConns(1)
	p.closed = 0
	p.refused = "PRAGMA main.synchronous = FULL"
	f.take("n", s)
	p.refused = ""
	assert.Equal(t, p.closed, 1, "connections were closed")
	assert.Equal(t, f.number("PRAGMA main.synchronous"), full, "synchronous=")
}

// granting are the ways to a token, of a name whose row is there and that nobody holds.
var granting = map[string]func(f *fixture, name string) int64{
	"take": func(f *fixture, name string) int64 { return f.take(name, f.session()).Token },
	"join": func(f *fixture, name string) int64 {
		grant, outcome, err := drivertest.Join(f.t.Context(), f, request(name, f.session()))
		if err != nil || outcome != protocol.Done {
			f.t.Fatal(outcome, err)
		}
		return grant.Token
	},
	"a batch": func(f *fixture, name string) int64 {
		grants, _, err := drivertest.Batch(f.t.Context(), f, []protocol.Request{request(name, f.session()),
			request(name+" too", f.session())}, nil)
		if err != nil || len(grants) != 2 {
			f.t.Fatal(grants, err)
		}
		return grants[0].Token
	},
	"units": func(f *fixture, name string) int64 { return f.share(shared(name, f.session(), 1, 2)).Token },
	"hand-over": func(f *fixture, name string) int64 {
		held := f.take(name, f.session())
		f.enqueue(name, f.session())
		return f.release(held, true).Grant.Token
	},
	"cohort": func(f *fixture, name string) int64 { return f.cohort(name, f.session(), 3).Token },
	"hand-over of units": func(f *fixture, name string) int64 {
		held := f.take(name, f.session())
		f.queue(shared(name, f.session(), 1, 2))
		return f.release(held, true).Grant.Token
	},
}

// Broken by a commit that does not wait, of a token that the clock has not reached: raised to that
// of another database, or from before the clock was set back.
func TestATokenIsNotGivenAgainAfterACrashOfTheMachine(t *testing.T) {
	for way, grant := range granting {
		for what, raise := range map[string]bool{"by the clock": false, "ahead of the clock": true} {
			t.Run(way+" "+what, func(t *testing.T) {
				f, p := onPower(t, "wal", "FULL")
				f.release(f.take("n", f.session()), false)
				if raise {
					f.exec("UPDATE dblock_locks SET token = ?", time.Now().Add(time.Hour).UnixMicro())
				}
				// all before it is on the disk
				require.NoError(t, f.Record(t.Context(), []protocol.Event{{Name: "n", Kind: "note"}}))
				token := grant(f, "n")
				f = p.fail(t, f)
				// their processes are gone
				f.exec("UPDATE dblock_locks SET session_id = NULL, shared_units = 0, waiters = 0")
				f.exec("DELETE FROM dblock_shares")
				f.exec("DELETE FROM dblock_waiters")
				if again := f.take("n", f.session()).Token; again <= token {
					t.Errorf("token %d after %d", again, token)
				}
			})
		}
	}
}
