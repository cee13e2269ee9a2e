package inspection

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

const (
	us  = time.Microsecond
	now = 1_000_000

	// lives is when the sessions of these rows end.
	lives = now + 10
)

func whole(session string, first, last, waiters int64) Row {
	return Row{
		Name: "n", SessionID: session, Host: "h", Thread: "t", Attempt: "w", FirstToken: first, Token: last, Since: 5,
		SessionExpiresAt: lives,
		Waiters:          waiters, Capacity: 3, NowUs: now,
	}
}

func shared(used, waiters int64) Row {
	return Row{Name: "n", Units: used, Waiters: waiters, Capacity: 3, NowUs: now}
}

func share(session, attempt string, token, lease, expires int64) Row {
	return Row{
		Name: "n", Part: Share, Place: token, SessionID: session, Attempt: attempt, Token: token, FirstToken: token,
		Units: 1, ExpiresAt: lease, SessionExpiresAt: expires, NowUs: now,
	}
}

func head(units, of int64) Row {
	return Row{
		Name: "n", Part: Place, SessionID: "x", Attempt: "x1", Units: units, Capacity: of, SessionExpiresAt: lives,
		NowUs: now,
	}
}

// with is a row, or a holder, with something else.
func with[T any](r T, change func(r *T)) T { change(&r); return r }

func holder(session string, token int64, contended bool, left time.Duration) protocol.Holder {
	return protocol.Holder{
		Session: session, Host: "h", Thread: "t", Attempt: "w", Grant: protocol.Grant{First: token, Token: token,
			Contended: contended}, Since: time.UnixMicro(5), Left: left,
	}
}

func part(session, attempt string, token int64, left time.Duration) protocol.Holder {
	return protocol.Holder{
		Session: session, Attempt: attempt, Units: 1, Grant: protocol.Grant{First: token, Token: token},
		Since: time.UnixMicro(0), Left: left,
	}
}

func TestWhatASessionSeesOfAName(t *testing.T) {
	contended := func(h *protocol.Holder) { h.Grant.Contended = true }
	first := protocol.Holder{Session: "x", Attempt: "x1", Units: 1, Since: time.UnixMicro(0), Left: 10 * us}
	cohort := protocol.Grant{First: 7, Token: 9, Contended: true}
	y := share("y", "y0", 7, 0, lives)
	beside := driver.State{Holder: with(part("y", "y0", 7, 10*us), contended), Sharing: 1, Used: 1, Capacity: 3,
		Waiters: 1, Head: first}
	for _, test := range []struct {
		says string
		rows []Row
		want driver.State
	}{
		{"free: what earlier requests stated does not count", []Row{shared(0, 0)}, driver.State{}},
		{"held by another", []Row{whole("x", 7, 7, 0)}, driver.State{Holder: holder("x", 7, false, 10*us)}},
		{"held by another, with waiters", []Row{whole("x", 7, 7, 2)}, driver.State{Holder: holder("x", 7, true, 10*us),
			Waiters: 2, Capacity: 3}},
		{"held by the dead", []Row{with(whole("x", 7, 7, 0), func(r *Row) { r.SessionExpiresAt = 0 })},
			driver.State{Holder: holder("x", 7, false, -now*us)}},
		{"held, with a lease that is over", []Row{with(whole("x", 7, 7, 0), func(r *Row) { r.ExpiresAt = now })},
			driver.State{
				Holder: with(holder("x", 7, false, 0), func(h *protocol.Holder) { h.Grant.Lease = -1 }),
			}},
		{"held by the session, with a lease", []Row{with(whole("s", 7, 7, 0), func(r *Row) { r.ExpiresAt = now + 4 })},
			driver.State{
				Holder:  with(holder("s", 7, false, 4*us), func(h *protocol.Holder) { h.Grant.Lease = 4 * us }),
				Granted: []driver.OwnGrant{{Attempt: "w", Grant: protocol.Grant{First: 7, Token: 7, Lease: 4 * us}}},
			}},
		{"held by a cohort of the session's, which has attempts that wait too", []Row{
			with(whole("s", 7, 9, 4), func(r *Row) { r.Queued = "a" }), with(whole("s", 7, 9, 4),
				func(r *Row) { r.Queued = "b" }),
		}, driver.State{
			Holder: with(holder("s", 9, true, 10*us), func(h *protocol.Holder) { h.Grant = cohort }), Waiters: 4,
			Capacity: 3, Queued: []string{"a", "b"},
			Granted: []driver.OwnGrant{{Attempt: "w", Grant: cohort}},
		}},
		{"shared: the first to end is shown", []Row{share("x", "x0", 8, 0, lives), share("s", "b", 9, 0, lives+2),
			share("s", "a", 7, 0, lives+1), shared(3, 0)}, driver.State{
			Holder: part("x", "x0", 8, 10*us), Sharing: 3, Used: 3, Capacity: 3,
			Granted: []driver.OwnGrant{{Attempt: "a", Grant: protocol.Grant{First: 7, Token: 7}},
				{Attempt: "b", Grant: protocol.Grant{First: 9, Token: 9}}},
		}},
		{"shared: by its lease", []Row{shared(2, 0), share("x", "x0", 7, 0, lives), share("y", "y0", 8, now+3, lives)},
			driver.State{
				Holder: with(part("y", "y0", 8, 3*us), func(h *protocol.Holder) { h.Grant.Lease = 3 * us }), Sharing: 2,
				Used: 2, Capacity: 3,
			}},
		{"shared by more than there are rows", []Row{shared(2, 0), with(share("x", "x0", 7, 0, lives),
			func(r *Row) { r.Sharing = 5 })}, driver.State{
			Holder: part("x", "x0", 7, 10*us), Sharing: 5, Used: 2, Capacity: 3,
		}},
		{"the head does not fit, and one behind it would", []Row{
			head(0, 0), shared(1, 1), y, with(head(1, 3), func(r *Row) { r.Place = 1 }),
		}, with(beside, func(s *driver.State) { s.Head.Units = 0 })},
		{"the head does not fit beside what is shared", []Row{head(0, 0), shared(1, 1), y},
			with(beside, func(s *driver.State) { s.Head.Units = 0 })},
		{"the head fits", []Row{head(1, 3), shared(1, 1), y}, with(beside, func(s *driver.State) { s.Ready = true })},
		{"the head fits, but the name rests",
			[]Row{head(1, 3), with(shared(1, 1), func(r *Row) { r.RestsUntil = now + 9 }), y},
			with(beside, func(s *driver.State) { s.Rest = 9 * us })},
		{"the head states too little", []Row{head(1, 1), shared(1, 1), y}, beside},
		{"free, with a queue", []Row{shared(0, 1), head(0, 0)}, driver.State{Capacity: 3, Waiters: 1, Ready: true}},
		{"free, with a queue that nobody is in", []Row{shared(0, 1)}, driver.State{Capacity: 3, Waiters: 1,
			Ready: true}},
		{"resting, with a queue", []Row{with(shared(0, 1), func(r *Row) { r.RestsUntil = now + 9 }), head(0, 0)},
			driver.State{Capacity: 3, Waiters: 1, Rest: 9 * us}},
		{"rested", []Row{with(shared(0, 1), func(r *Row) { r.RestsUntil = now }), head(0, 0)}, driver.State{Capacity: 3,
			Waiters: 1, Ready: true}},
	} {
		t.Run(test.says, func(t *testing.T) {
			test.want.Name = "n"
			orphan := Row{Name: "gone", Part: Share, SessionID: "s"}
			got := timeless(States("s", 0, append(test.rows, orphan)))
			if !reflect.DeepEqual(got, []driver.State{test.want}) {
				t.Errorf("%+v\nwant %+v", got, test.want)
			}
		})
	}
}

// timeless returns states without the times at which they were seen.
func timeless(states []driver.State) []driver.State {
	for i := range states {
		states[i].Seen = time.Time{}
	}
	return states
}

func TestNamesThatAreSharedOrFreeAreLookedAtCloser(t *testing.T) {
	rows := func(used, waiters int64) (rows []Row) {
		for name, session := range map[string]string{"held": "x", "free": ""} {
			r := Row{Name: name, SessionID: session, Units: used, Waiters: waiters, Queued: name}
			rows = append(rows, r, r)
		}
		return rows
	}
	for _, test := range []struct {
		used, waiters int64
		closer        []string
	}{{0, 0, nil}, {1, 0, []string{"free"}}, {0, 1, []string{"free"}}} {
		var asked []string
		first := func([]string) ([]Row, error) { return rows(test.used, test.waiters), nil }
		states, err := Read("s", []string{"held", "free"}, 0, first, func(names []string, places int) ([]Row, error) {
			if asked = names; places != 1 {
				t.Errorf("%d places are read: want 1", places)
			}
			return []Row{{Name: "free", Waiters: 9}}, nil
		})
		if err != nil || !slices.Equal(asked, test.closer) || len(states) != 2 {
			t.Fatalf("%+v: %v, %+v, %v", test, asked, states, err)
		}
		for _, s := range states {
			if closer := slices.Contains(asked, s.Name); closer != (s.Waiters == 9) || closer != (len(s.Queued) == 0) {
				t.Errorf("%+v: %+v", test, s)
			}
		}
	}
	failure := errors.New("failure")
	failing := func([]string) ([]Row, error) { return nil, failure }
	assert.Equal(t, assert.ErrOf(Read("s", nil, 0, failing, nil)), failure)
	first := func([]string) ([]Row, error) { return rows(1, 0), nil }
	for waiters := range 2 {
		_, err := Read("s", nil, waiters, first, func([]string, int) ([]Row, error) { return nil, failure })
		assert.Equal(t, err, failure, waiters)
	}
}

func TestWhereWaitersAreAskedForAllHoldersAreShown(t *testing.T) {
	waiter := func(nth int64, session string) Row {
		return Row{Name: "b", Part: Place, Place: nth, SessionID: session, SessionExpiresAt: lives, NowUs: now}
	}
	all := func([]string, int) ([]Row, error) {
		return []Row{
			{Name: "c", NowUs: now, Place: 3, Capacity: 4},
			waiter(3, "z"), waiter(2, "y"), waiter(4, "w"),
			{
				Name: "b", SessionID: "x", Host: "h", Thread: "t", Attempt: "a", FirstToken: 8, Token: 9, Since: 5,
				ExpiresAt: now + 2, SessionExpiresAt: lives, Metadata: "{}", Asked: "please", App: "app", Pid: 42,
				Waiters: 6, Capacity: 4, RestsUntil: now + 7, NowUs: now, Place: 10,
			},
			{Name: "a", Part: Share, SessionID: "orphan"},
			{
				Name: "d", Part: Share, SessionID: "y", Units: 1, FirstToken: 6, Token: 6, Place: 6,
				SessionExpiresAt: lives, NowUs: now,
			},
			{Name: "d", NowUs: now, Units: 3, Capacity: 4},
			{Name: "d", Part: Share, SessionID: "x", Units: 2, FirstToken: 4, Token: 4, Place: 4, NowUs: now},
		}, nil
	}
	zero := time.UnixMicro(0)
	held := protocol.Holder{
		Session: "x", Host: "h", Thread: "t", Attempt: "a",
		Grant: protocol.Grant{First: 8, Token: 9, Contended: true, Lease: 2 * us}, Since: time.UnixMicro(5),
		Left: 2 * us,
	}
	one := protocol.Holder{
		Session: "x", Units: 2, Grant: protocol.Grant{First: 4, Token: 4}, Since: zero, Left: -now * us,
	}
	two := protocol.Holder{
		Session: "y", Units: 1, Grant: protocol.Grant{First: 6, Token: 6}, Since: zero, Left: 10 * us,
	}
	want := []driver.State{
		{
			Name: "b", Token: 10, Holder: held, Capacity: 4, Waiters: 6, Rest: 7 * us,
			Holders: []driver.Participant{{Holder: held, App: "app", PID: 42, Metadata: "{}", Asked: "please"}},
			Queue: []driver.Participant{
				{Holder: protocol.Holder{Session: "y", Since: zero, Left: 10 * us}},
				{Holder: protocol.Holder{Session: "z", Since: zero, Left: 10 * us}},
			},
		},
		{Name: "c", Token: 3},
		{
			Name: "d", Holder: one, Sharing: 2, Used: 3, Capacity: 4,
			Holders: []driver.Participant{{Holder: one}, {Holder: two}},
		},
	}
	if states, err := Read("s", nil, 2, nil, all); !reflect.DeepEqual(timeless(states), want) || err != nil {
		t.Errorf("%+v, %v\nwant %+v", states, err, want)
	}
}

func TestASessionIsDeadOrHasTime(t *testing.T) {
	for expires, want := range map[int64]driver.SessionDetail{0: {Dead: true, Left: -now * us}, lives: {Left: 10 * us},
		now: {}} {
		want.ID, want.Started, want.Held, want.Waiting = "s", time.UnixMicro(5), 1, 2
		assert.Equal(t, (Session{ID: "s", StartedAt: 5, NowUs: now, ExpiresAt: expires, Held: 1, Waiting: 2}).Detail(),
			want)
	}
}

func TestAboveAPrefixIsTheNextThatDoesNotBeginWithIt(t *testing.T) {
	for prefix, want := range map[string]string{"a\xff\xff": "b", "\xff": "", "": "", "a/": "a0"} {
		assert.Equal(t, Above(prefix), want, "above", prefix)
	}
}
