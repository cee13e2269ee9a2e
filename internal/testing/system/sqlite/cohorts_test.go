package sqlite_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// cohort has a session get a name as a cohort of so many, after another session has had it.
func (f *fixture) cohort(name, session string, members int) protocol.Grant {
	f.t.Helper()
	held := f.take(name, f.session())
	r := request(name, session)
	r.Members = members
	f.queue(r)
	next := f.release(held, true)
	if next.Attempt != r.Attempt || next.Grant.Token-next.Grant.First != int64(members)-1 {
		f.t.Fatalf("%+v", next)
	}
	return next.Grant
}

// tables are all that there is of locks, shares and waiters.
func (f *fixture) tables() string {
	f.t.Helper()
	var all []string
	for _, query := range []string{
		"SELECT concat_ws(' ', name, session_id, attempt, host, thread, token, first_token, last_token, waiters, " +
			"next_ticket) FROM dblock_locks",
		"SELECT concat_ws(' ', name, token, session_id, attempt, units) FROM dblock_shares ORDER BY token",
		"SELECT concat_ws(' ', name, ticket, session_id, attempt, members) FROM dblock_waiters ORDER BY ticket",
		"SELECT concat_ws(' ', name, kind) FROM dblock_events ORDER BY id",
	} {
		rows, err := f.pool.QueryContext(f.t.Context(), query)
		require.NoError(f.t, err)
		for rows.Next() {
			var row string
			require.NoError(f.t, rows.Scan(&row))
			all = append(all, row)
		}
		require.NoError(f.t, rows.Err())
	}
	return strings.Join(all, "\n")
}

// Broken by a take, a release or a join that has grown: a statement is mostly the time to parse it.
func TestWhatIsDoneMostTakesFewStatements(t *testing.T) {
	f, p := onPower(t, "wal", "FULL")
	s, other := f.session(), f.session()
	ran := func(what string, step func(), want ...string) {
		t.Helper()
		p.levels, p.ran = nil, nil
		if step(); !slices.Equal(p.ran, want) || len(p.levels) != 1 {
			t.Errorf("%s: %v, in %d transactions; want %v", what, p.ran, len(p.levels), want)
		}
	}
	var held protocol.Held
	ran("a take", func() { held = f.take("n", s) }, "TakeLock")
	ran("a release", func() { f.release(held, false) }, "ReleaseIdle")
	held = f.take("n", s)
	ran("a join", func() { f.enqueue("n", other) }, "LockRow", "WriteQueue", "AddPlace")
	generally := func(op protocol.Op) func() {
		return func() {
			if result, err := driver.Do(t.Context(), f, drivertest.General{Op: op}); err != nil || !result.Done() {
				t.Errorf("%+v, %v", result, err)
			}
		}
	}
	ran("a take, the general way", generally(protocol.Take{Request: request("g", s)}), "LockRow", "Clock", "MakeLock",
		"WriteLock")
	general := protocol.Held{Name: "g", Session: s, Token: f.look(s, "g").Holder.Grant.Token}
	ran("a release, the general way", generally(protocol.Release(general, false, false)), "LockRow", "WriteLock")
	ran("a take of a free name, the general way", generally(protocol.Take{Request: request("g", s)}), "LockRow",
		"WriteLock")
	ran("a hand-over", func() { f.release(held, true) }, "LockRow", "Places", "WriteLock", "DropPlace", "CountGrant")
}

func TestAMemberIsReleasedInATransactionOfTheApplications(t *testing.T) {
	for behind, want := range map[int]int{0: 1, 1: 3, 2: 3} { // waiters
		f := newFixture(t)
		s, other := f.session(), f.session()
		grant := f.cohort("n", s, 3)
		r := request("n", other)
		r.Members = 2
		f.queue(r)
		f.enqueue("n", s)
		before := f.tables()
		held := protocol.Held{Name: "n", Session: s, Token: grant.Token}
		d := protocol.Detachment{Token: grant.Token - int64(behind), Host: "member", Thread: "t"}
		if behind > 0 {
			d.Behind = request("n", s)
			d.Behind.Members = behind
		}
		tx := f.begin()
		require.NoError(t, f.In(tx).Guard(t.Context(), held, nil))
		require.NoError(t, f.In(tx).Release(t.Context(), held, d, nil))
		require.NoError(t, tx.Rollback())
		if after := f.tables(); after != before {
			t.Fatalf("after a rollback:\n%s\nwas\n%s", after, before)
		}
		tx = f.begin()
		require.NoError(t, f.In(tx).Release(t.Context(), held, d, nil))
		require.NoError(t, tx.Commit())
		f.sound()
		state := f.look(s, "n")
		next := r
		if behind > 0 {
			next = d.Behind
		}
		got := state.Holder.Grant
		if state.Holder.Attempt != next.Attempt || got.Token-got.First != int64(next.Members)-1 ||
			got.First <= grant.Token || state.Waiters != want {
			t.Errorf("%d behind: %+v, want %d waiters", behind, state, want)
		}
	}
}

// Broken by looking at the first token alone: the clock has passed that, and not the last.
func TestACohortWhoseLastTokenTheClockHasNotReachedMustLast(t *testing.T) {
	for members, want := range map[int]int64{9: 1, 10: full} {
		for _, queued := range []bool{false, true} {
			t.Run(fmt.Sprint(members, queued), func(t *testing.T) {
				f, p := onPower(t, "wal", "FULL")
				s := f.session()
				held := f.take("n", s)
				f.exec("DROP VIEW dblock_clock")
				f.exec("CREATE TABLE dblock_clock (now_us integer)")
				now := time.Now().UnixMilli() * 1000
				f.exec("INSERT INTO dblock_clock VALUES (?)", now)
				f.exec("UPDATE dblock_locks SET token = ?", now+tick.Microseconds()-10)
				r := request("n", s)
				r.Members = members
				if queued {
					f.queue(r)
					p.levels = nil
					f.release(held, true)
				} else {
					f.release(held, false)
					p.levels = nil
					f.share(r)
				}
				if first := f.look(s, "n").Holder.Grant.First; first != now+tick.Microseconds()-9 {
					t.Fatal(first - now)
				}
				if !slices.Equal(p.levels, []int64{want}) {
					t.Errorf("a cohort of %d was committed with synchronous=%v: want %d", members, p.levels, want)
				}
			})
		}
	}
}
