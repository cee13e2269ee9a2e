package contracts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

var reading = []test{
	{"a look shows the holder, the queue and the session's own attempts", lookAtAName},
	{"a look shows of several holders the one that expires first", lookAtShares},
	{"a look shows until when a name rests, and that it is ready then", lookAtARest},
	{"a look shows any number of names", lookAtMany},
	{"a session sees its places in a queue, whatever the row of the name counts", lookPastTheCount},
	{"a cohort is one holder or one place, with all its members", cohort},
	{"the details of a name are its holders and its waiters, with their sessions", details},
	{"names are listed in the order of their bytes, by prefix, host, age and page", names},
	{"the wait-for graph leads from places to holders and on, and leaves the dead out", waitGraph},
	{"the need of a place is the largest of those up to it", needs},
	{"a long ring of waiters is seen as a whole", ring},
}

func lookAtAName(w *world) {
	a, b := w.session(), w.session()
	if states, err := w.Read(w.ctx, a, nil, 0); err != nil || len(states) != 0 {
		w.Fatalf("no names: %v, %v", states, err)
	}
	r := whole("n", a)
	r.Lease = time.Minute
	held := w.take(r)
	mine := []string{w.queue(whole("n", b)), w.queue(whole("n", b))}
	w.queue(whole("n", a))
	states, err := w.Read(w.ctx, b, []string{"n", "none"}, 0)
	if err != nil || len(states) != 1 {
		w.Fatalf("%+v, %v", states, err)
	}
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	if s := states[0]; s.Name != "n" || s.Waiters != 3 || !slices.Equal(sorted(s.Queued), sorted(mine)) ||
		s.Sharing != 0 ||
		s.Granted != nil || s.Ready {
		w.Errorf("%+v", s)
	}
	h := states[0].Holder
	if h.Session != a || h.Host != "h" || h.Thread != a || h.Attempt != r.Attempt || h.Grant.Token != held.Token ||
		!h.Grant.Contended ||
		h.Left <= 0 || h.Left > time.Minute || h.Grant.Lease != h.Left || !recent(h.Since) {
		w.Errorf("%+v", h)
	}
	if own := w.look(a, "n").Granted; len(own) != 1 || own[0].Attempt != r.Attempt || own[0].Grant.Token != held.Token {
		w.Errorf("own grants: %+v", own)
	}
	w.exec("UPDATE dblock_locks SET expires_at = 1")
	if h = w.look(b, "n").Holder; h.Grant.Lease != -1 || h.Left > 0 {
		w.Errorf("an expired lease: %+v", h)
	}
	w.exec("UPDATE dblock_locks SET expires_at = NULL")
	if h = w.look(b, "n").Holder; h.Grant.Lease != 0 || !about(h.Left) {
		w.Errorf("without a lease: %+v", h)
	}
	w.release(held, mine[0])
	if s := w.look(b, "n"); s.Holder.Attempt != mine[0] || s.Waiters != 2 || !slices.Equal(s.Queued, mine[1:]) ||
		len(s.Granted) != 1 {
		w.Errorf("%+v", s)
	}
	if s := w.look("", "n"); s.Waiters != 2 || s.Queued != nil || s.Granted != nil {
		w.Errorf("of no session: %+v", s)
	}
}

func lookAtShares(w *world) {
	s, dead := w.session(), w.session()
	w.take(units("n", dead, 2, 4))
	leased := units("n", s, 1, 3)
	leased.Lease = time.Minute
	w.take(leased)
	first := w.queue(units("n", dead, 3, 4))
	w.queue(units("n", s, 1, 4))
	state := w.look(s, "n")
	if state.Sharing != 2 || state.Used != 3 || state.Capacity != 3 || state.Waiters != 2 || len(state.Granted) != 1 ||
		state.Ready {
		w.Fatalf("%+v", state)
	}
	if h := state.Holder; h.Attempt != leased.Attempt || h.Units != 1 {
		w.Errorf("%+v: want the one whose lease expires first", h)
	}
	if h := state.Head; h.Attempt != first || h.Session != dead || h.Units != 3 || !about(h.Left) {
		w.Errorf("%+v: want the first place", h)
	}
	w.lapse(dead)
	if h := w.look(s, "n").Holder; h.Session != dead || h.Left > 0 || h.Units != 2 {
		w.Errorf("%+v: want the one whose session has expired", h)
	}
	if h := w.look(s, "n").Head; h.Left > 0 {
		w.Errorf("%+v: its session has expired", h)
	}
	w.take(reader("m", s))
	if state := w.look(s, "m"); state.Capacity != protocol.Readers {
		w.Errorf("%+v", state)
	}
	// The head fits where it does by what all state, itself included.
	w.take(units("k", s, 2, 4))
	w.queue(units("k", s, 1, 2))
	for capacity, want := range map[int]bool{2: false, 3: true} {
		w.exec("UPDATE dblock_waiters SET capacity = ? WHERE name = 'k'", capacity)
		if ready := w.look("", "k").Ready; ready != want {
			w.Errorf("2 units are used, and the head wants 1 of %d: ready is %v", capacity, ready)
		}
	}
}

func lookAtARest(w *world) {
	s := w.session()
	r := whole("n", s)
	r.MinHold = time.Hour
	held := w.take(r)
	waiting := whole("n", s)
	waiting.MinHold = time.Hour
	waiter := w.queue(waiting)
	w.release(held)
	if state := w.look(s, "n"); state.Holder.Session != "" || state.Waiters != 1 || state.Ready || !about(state.Rest) {
		w.Fatalf("%+v", state)
	}
	w.takeOver("n", protocol.Holder{}, false)
	w.exec("UPDATE dblock_locks SET rests_until = 1")
	if state := w.look(s, "n"); !state.Ready || state.Rest > 0 {
		w.Fatalf("%+v", state)
	}
	w.takeOver("n", protocol.Holder{}, true, waiter)
	if state := w.look(s, "n"); state.Ready || !about(state.Rest) {
		w.Fatalf("the waiter's own rest: %+v", state)
	}
}

// A client that does not see its place takes the place for gone, and joins once more.
func lookPastTheCount(w *world) {
	s := w.session()
	w.take(whole("n", w.session()))
	attempt := w.queue(whole("n", s))
	w.exec("UPDATE dblock_locks SET waiters = 0 WHERE name = 'n'")
	if state := w.look(s, "n"); !slices.Equal(state.Queued, []string{attempt}) {
		w.Fatalf("%+v", state)
	}
}

func lookAtMany(w *world) {
	s := w.session()
	names := make([]string, 1200)
	for i := range names {
		if names[i] = fmt.Sprint("n", i); i%2 == 0 {
			w.take(whole(names[i], s))
		}
	}
	for _, n := range []int{0, 1, 2, 8, 9, 512, 513, 1200} {
		if states, err := w.Read(w.ctx, s, names[:n], 0); err != nil || len(states) != (n+1)/2 {
			w.Fatalf("%d of %d names, %v", len(states), n, err)
		}
		if states, err := w.Read(w.ctx, "", names[:n], 1); err != nil || len(states) != (n+1)/2 {
			w.Fatalf("%d of %d names, %v", len(states), n, err)
		}
	}
}

func cohort(w *world) {
	s, other := w.session(), w.session()
	r := whole("n", s)
	r.Members = 3
	taken, err := driver.Do(w.ctx, w.Backend, protocol.Take{Request: r})
	w.must(err)
	grant := taken.Grant
	place := whole("n", other)
	place.Members = 4
	w.queue(place)
	own := w.queue(whole("n", s))
	state := w.look(s, "n")
	if state.Waiters != 5 || !slices.Equal(state.Queued, []string{own}) || len(state.Granted) != 1 ||
		state.Granted[0].Grant.First != grant.First || state.Granted[0].Grant.Token != grant.Token ||
		state.Holder.Grant.First != grant.First {
		w.Errorf("%+v", state)
	}
	states, err := w.Read(w.ctx, "", []string{"n"}, 10)
	if err != nil || len(states) != 1 || states[0].Waiters != 5 || len(states[0].Queue) != 2 ||
		states[0].Holders[0].Grant.First != grant.First {
		w.Errorf("%+v, %v", states, err)
	}
	claims, err := w.Claims(w.ctx, s, 10)
	slices.SortFunc(claims, func(a, b driver.Claim) int { return cmp.Compare(b.Token, a.Token) })
	if err != nil || len(claims) != 2 || claims[0].Token != grant.Token || claims[1].Token != 0 {
		w.Errorf("%+v, %v", claims, err)
	}
	waits, err := w.WaitGraph(w.ctx, []driver.Waiting{{Name: "n", Attempt: state.Queued[0]}})
	if err != nil || len(waits) != 1 || waits[0].Holds {
		w.Errorf("a cohort holds, though the row does not tell which member: %+v, %v", waits, err)
	}
}

func details(w *world) {
	a, b := w.session(), w.session()
	r := whole("whole", a)
	r.Metadata, r.Lease, r.MinHold = `{"k":"v"}`, time.Hour, time.Hour
	held := w.take(r)
	waiting := units("whole", b, 2, 3)
	waiting.Metadata = `{"w":1}`
	w.queue(waiting)
	w.queue(whole("whole", b))
	w.exec("UPDATE dblock_locks SET asked = 'please'")
	one, two := units("shared", a, 2, 5), units("shared", b, 1, 5)
	first, last := w.take(one), w.take(two)
	w.exec("UPDATE dblock_shares SET asked = 'why'")
	w.release(w.take(units("idle", a, 1, 2)))
	w.lapse(b)

	states, err := w.Read(w.ctx, "", []string{"idle", "none", "whole", "shared"}, driver.All)
	if err != nil || len(states) != 3 || states[0].Name != "idle" || states[1].Name != "shared" ||
		states[2].Name != "whole" {
		w.Fatalf("%+v, %v", states, err)
	}
	if d := states[0]; d.Token == 0 || d.Capacity != 0 || d.Holders != nil || d.Queue != nil || d.Rest > 0 {
		w.Errorf("%+v", d)
	}
	d := states[1]
	if d.Token != last.Token || d.Capacity != 5 || len(d.Holders) != 2 || len(d.Queue) != 0 {
		w.Fatalf("%+v", d)
	}
	for i, want := range []protocol.Request{one, two} {
		h := d.Holders[i]
		token := []int64{first.Token, last.Token}[i]
		if h.Attempt != want.Attempt || h.Units != want.Units || h.Grant.Token != token || h.Asked != "why" ||
			h.Grant.Contended || h.App != "test" || (h.Left <= 0) != (i == 1) {
			w.Errorf("%+v", h)
		}
	}
	d = states[2]
	if d.Token != held.Token || d.Capacity != 3 || len(d.Holders) != 1 || len(d.Queue) != 2 || d.Waiters != 2 ||
		!about(d.Rest) {
		w.Fatalf("%+v", d)
	}
	if h := d.Holders[0]; h.Session != a || h.Host != "h" || h.Thread != r.Thread || h.Attempt != r.Attempt ||
		h.Units != 0 ||
		h.Grant.Token != held.Token || !h.Grant.Contended || !about(h.Grant.Lease) || h.App != "test" || h.PID != 1 ||
		h.Metadata != r.Metadata || h.Asked != "please" || !recent(h.Since) {
		w.Errorf("%+v", h)
	}
	if p := d.Queue[0]; p.Session != b || p.Attempt != waiting.Attempt || p.Units != 2 ||
		p.Grant != (protocol.Grant{}) ||
		p.Metadata != waiting.Metadata || p.Left > 0 || !recent(p.Since) || d.Queue[1].Units != 0 {
		w.Errorf("%+v", p)
	}
	if states, err = w.Read(w.ctx, "", []string{"whole"}, 1); err != nil || len(states[0].Queue) != 1 ||
		states[0].Waiters != 2 {
		w.Errorf("%+v, %v", states, err)
	}
}

func names(w *world) {
	s := w.session()
	for _, name := range []string{"p", "p/1", "p/2", "p0", "P/1", "%", "ÿ1", "ÿ", "Ā", "ÿÿ"} {
		w.take(whole(name, s))
	}
	w.release(w.take(whole("p/idle", s)))
	elsewhere := units("p/3", s, 1, 2)
	elsewhere.Host = "elsewhere"
	w.take(elsewhere)
	for _, name := range []string{"p/1", "p/2", "p0"} {
		candidate := whole(name, s)
		candidate.Attempt = protocol.Candidacy(candidate.Attempt)
		w.queue(candidate)
	}
	w.queue(whole("p/2", s))
	lists := func(f driver.Filter, want ...string) {
		w.Helper()
		for _, limit := range []int{1, 3, 100} {
			var got []string
			for page := f; ; page.After = got[len(got)-1] {
				names, err := w.Names(w.ctx, page, limit)
				w.must(err)
				if got = append(got, names...); len(names) < limit {
					break
				}
			}
			if !slices.Equal(got, want) {
				w.Errorf("%+v, %d at a time: %q, want %q", f, limit, got, want)
			}
		}
	}
	lists(driver.Filter{}, "%", "P/1", "p", "p/1", "p/2", "p/3", "p0", "ÿ", "ÿ1", "ÿÿ", "Ā")
	lists(driver.Filter{Prefix: "p/"}, "p/1", "p/2", "p/3")
	lists(driver.Filter{Prefix: "p/", After: "p/1"}, "p/2", "p/3")
	lists(driver.Filter{Prefix: "p/", After: "a"}, "p/1", "p/2", "p/3")
	lists(driver.Filter{Prefix: "p/", After: "q"})
	lists(driver.Filter{Prefix: "p/2"}, "p/2")
	lists(driver.Filter{Prefix: "p/", Idle: true}, "p/1", "p/2", "p/3", "p/idle")
	lists(driver.Filter{Prefix: "ÿ"}, "ÿ", "ÿ1", "ÿÿ")
	lists(driver.Filter{Prefix: "%"}, "%")
	lists(driver.Filter{Prefix: "p%"})
	lists(driver.Filter{Contended: true}, "p/2") // behind a candidate; candidates alone are no contention
	lists(driver.Filter{Contended: true, Host: "h"}, "p/2")
	lists(driver.Filter{Host: "elsewhere"}, "p/3")
	lists(driver.Filter{Host: "elsewhere "})
	lists(driver.Filter{Host: "nowhere", Idle: true})
	lists(driver.Filter{Older: time.Hour})
	// The host and the age are those of one and the same holder.
	w.exec("UPDATE dblock_locks SET acquired_at = 1 WHERE name IN ('p', 'p/3', 'p/idle')")
	w.take(units("p/3", s, 1, 2))
	w.exec("UPDATE dblock_shares SET acquired_at = 1 WHERE host = 'h'")
	lists(driver.Filter{Older: time.Hour, Idle: true}, "p", "p/3")
	lists(driver.Filter{Older: time.Hour, Host: "elsewhere"})
	lists(driver.Filter{Older: time.Hour, Host: "h", Prefix: "p/"}, "p/3")
}

// by is a request of a thread.
func by(r protocol.Request, thread string) protocol.Request {
	r.Thread = thread
	return r
}

// waits compares a part of the wait-for graph, in words and in the order of the names.
func (w *world) waits(from []driver.Waiting, want ...string) {
	w.Helper()
	waits, err := w.WaitGraph(w.ctx, from)
	w.must(err)
	slices.SortFunc(waits, func(a, b driver.Wait) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(fmt.Sprint(a.Holds), fmt.Sprint(b.Holds)),
			cmp.Compare(a.Thread, b.Thread))
	})
	var got []string
	for _, p := range waits {
		what := fmt.Sprintf("needs %d", p.Need)
		if p.Holds {
			what = "holds"
		}
		if p.Capacity == protocol.Readers {
			p.Capacity = -1
		}
		got = append(got, fmt.Sprintf("%s %s %s %d/%d", p.Thread, what, p.Name, p.Units, p.Capacity))
		if !recent(p.Since) || p.Attempt == "" || p.Session == "" || p.Host != "h" {
			w.Errorf("%+v", p)
		}
	}
	if !slices.Equal(got, want) {
		w.Errorf("from %q: %q\nwant %q", from, got, want)
	}
}

func waitGraph(w *world) {
	a, b, c := w.session(), w.session(), w.session()
	// 1 writes v, 2 reads w as a bystander does, 3 has permits of x, 4 writes y, 5 reads z.
	w.take(by(whole("v", a), "1"))
	w.take(by(reader("w", b), "2"))
	w.take(by(reader("w", c), "bystander"))
	w.take(by(units("x", a, 2, 4), "3"))
	w.take(by(whole("y", b), "4"))
	w.take(by(reader("z", a), "5"))
	ring := []driver.Waiting{
		w.place(by(whole("w", a), "1")), w.place(by(units("x", b, 3, 4), "2")), w.place(by(reader("y", a), "3")),
		w.place(by(whole("z", b), "4")), w.place(by(whole("v", a), "5")),
	}
	// Not in the ring: a waiter behind it, other threads of a session, a name apart.
	outside := w.place(by(reader("v", c), "outside"))
	w.queue(by(whole("w", a), "1 "))
	w.queue(by(whole("w", a), "3 "))
	w.take(by(whole("apart", c), "apart"))
	w.queue(by(whole("apart", a), "apart"))
	want := []string{
		"5 needs 0 v 0/0", "1 holds v 0/0",
		"1 needs 0 w 0/0", "2 holds w 1/-1", "bystander holds w 1/-1",
		"2 needs 3 x 3/4", "3 holds x 2/4",
		"3 needs 1 y 1/-1", "4 holds y 0/0",
		"4 needs 0 z 0/0", "5 holds z 1/-1",
	}
	for _, p := range ring {
		w.waits([]driver.Waiting{p}, want...)
	}
	w.waits(ring, want...)
	nobody := driver.Waiting{Name: "v", Attempt: "nobody"}
	w.waits([]driver.Waiting{outside, nobody}, slices.Insert(slices.Clone(want), 1, "outside needs 0 v 1/0")...)
	w.waits([]driver.Waiting{})
	w.waits([]driver.Waiting{nobody})
	w.lapse(b)
	w.waits(ring[:1], "1 needs 0 w 0/0", "bystander holds w 1/-1")
}

func needs(w *world) {
	a, dead := w.session(), w.session()
	w.take(by(units("n", a, 5, 5), "holder"))
	var places []driver.Waiting
	for i, r := range []protocol.Request{
		units("n", a, 2, 5), units("n", a, 1, 5), units("n", dead, 3, 5), units("n", a, 1, 5),
		whole("n", dead), units("n", a, 1, 5), whole("n", a), units("n", a, 1, 5),
	} {
		places = append(places, w.place(by(r, fmt.Sprint(i))))
	}
	w.waits(places,
		"0 needs 2 n 2/5", "1 needs 2 n 1/5", "2 needs 3 n 3/5", "3 needs 3 n 1/5", "4 needs 0 n 0/0",
		"5 needs 0 n 1/0", "6 needs 0 n 0/0", "7 needs 0 n 1/0", "holder holds n 5/5")
	w.must(w.EndSession(w.ctx, dead, false))
	w.waits(places,
		"0 needs 2 n 2/5", "1 needs 2 n 1/5", "3 needs 2 n 1/5", "5 needs 2 n 1/5", "6 needs 0 n 0/0",
		"7 needs 0 n 1/0", "holder holds n 5/5")
}

// ring is as long as its names, and each is a step of the statement's recursion: MySQL ends it at a
// thousand.
func ring(w *world) {
	const names = 20
	s := w.session()
	var last driver.Waiting
	for i := range names {
		w.take(by(whole(fmt.Sprint(i), s), fmt.Sprint(i)))
	}
	for i := range names {
		last = w.place(by(whole(fmt.Sprint((i+1)%names), s), fmt.Sprint(i)))
	}
	if waits, err := w.WaitGraph(w.ctx, []driver.Waiting{last}); err != nil || len(waits) != 2*names {
		w.Fatalf("%d rows: %+v, %v", len(waits), waits, err)
	}
}
