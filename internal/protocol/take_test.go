package protocol_test

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
)

func taking(r protocol.Request) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		taken, err := protocol.Take{Request: r}.Apply(n)
		if !taken.Done() {
			return "no", err
		}
		return "takes " + grant(taken.Grant), err
	}
}

func joining(r protocol.Request) func(n *protocol.Name) (string, error) { return behind("", r) }

func behind(attempt string, r protocol.Request) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		joined, err := protocol.Join{Request: r, Extends: attempt}.Apply(n)
		switch {
		case joined.Done():
			return "granted " + grant(joined.Grant), err
		case joined.Ahead > 0:
			return fmt.Sprint("queued behind ", joined.Ahead), err
		}
		return "queued", err
	}
}

func reentering(r protocol.Request) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		back, err := protocol.Reenter{Request: r}.Apply(n)
		if !back.Done() {
			return "no", err
		}
		return "reenters " + grant(back.Grant), err
	}
}

func TestTake(t *testing.T) {
	run(t, []row{
		{"a free name is taken", requests(), func(tab *table) { tab.Put(protocol.Row{Name: "n"}, nil, nil) },
			taking(request("a")), "takes 0: a=0"},
		{"a held one is not", requests(request("a")), nil, taking(request("b")), "no: a=0"},
		{"nor by its own session", requests(request("a1")), nil, taking(request("a2")), "no: a1=0"},
		{"nor one that is read", requests(request("a", reads)), nil, taking(request("b")), "no: a:r=0"},
		{"readers read together", requests(request("a", reads)), nil, taking(request("b", reads)),
			"takes 1: a:r=0 b:r=1"},
		{"a reader does not read what is held", requests(request("a")), nil, taking(request("b", reads)), "no: a=0"},
		{"permits are taken while they last", requests(request("a", permits(2, 3))), nil,
			taking(request("b", permits(1, 3))), "takes 1: a:2/3=0 b:1/3=1"},
		{"and no more", requests(request("a", permits(2, 3))), nil, taking(request("b", permits(2, 3))), "no: a:2/3=0"},
		{"the smallest number that is stated counts", requests(request("a", permits(2, 3))), nil,
			taking(request("b", permits(2, 9))), "no: a:2/3=0"},
		{"that of the request too", requests(request("a", permits(2, 9))), nil, taking(request("b", permits(2, 3))),
			"no: a:2/9=0"},
		{"no request passes a waiter", requests(request("a", reads), request("b")), nil, taking(request("c", reads)),
			"no: a:r=0 < b"},
		{"not even where the name is free", requests(request("a", rests), request("b")), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), true, false)))
			tab.now += 9
		}, taking(request("c")), "no: free < b"},
		{"a permit does not take what is read", requests(request("a", reads)), nil, taking(request("b", permits(1, 3))),
			"no: a:r=0"},
		{"a reader takes no permit", requests(request("a", permits(1, 3))), nil, taking(request("b", reads)),
			"no: a:1/3=0"},
		{"nobody takes what rests", requests(request("a", rests)), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), true, false)))
		}, taking(request("b")), "no: free rests 4"},
		{"not even to read", requests(request("a", rests)), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), true, false)))
		}, taking(request("b", reads)), "no: free rests 4"},
		{"when it has rested it is taken, and rests no more", requests(request("a", rests)), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), true, false)))
			tab.now = began + 5
		}, taking(request("b")), "takes 5: b=5"},
		{"a cohort has a token for each member", requests(), func(tab *table) {
			tab.Put(protocol.Row{Name: "n"}, nil, nil)
		},
			taking(request("a", members(3))), "takes 0..2: a=0..2"},
		{"tokens rise though the clock stands behind them", requests(request("a", members(3))), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 2), false, false)))
		}, taking(request("b")), "takes 3: b=3"},
		{"and with the clock", requests(request("a")), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), false, false)))
			tab.now = began + 50
		}, taking(request("b", leased)), "takes 50(5): b=50(5)"},
		{"a fixed lease counts from the grant, of a share too", requests(request("a", reads)), later(3),
			taking(request("b", reads, leased)), "takes 4(5): a:r=0 b:r=4(5)"},
	})
}

func TestJoin(t *testing.T) {
	first := func(tab *table) { tab.Put(protocol.Row{Name: "n", Head: 1, Next: 1}, nil, nil) }
	run(t, []row{
		{"a free name is granted", requests(), first, joining(request("a")), "granted 0: a=0"},
		{"a held one is queued for, at the end", requests(request("a"), request("b")), nil, joining(request("c")),
			"queued: a=0 < b c"},
		{"by a cohort as one place", requests(request("a")), nil, joining(request("b", members(3))),
			"queued: a=0 < b*3"},
		{"a request that would fit waits behind those who wait", requests(request("a", reads), request("b")), nil,
			joining(request("c", reads)), "queued: a:r=0 < b c"},
		{"permits collide with readers that hold", requests(request("a", reads)), nil,
			joining(request("b", permits(1, 3))),
			"error: readers and permits do not share a name"},
		{"and with those that wait", requests(request("a"), request("b", reads)), nil,
			joining(request("c", permits(1, 3))),
			"error: readers and permits do not share a name"},
		{"readers with permits", requests(request("a"), request("b", permits(1, 3))), nil, joining(request("c", reads)),
			"error: readers and permits do not share a name"},
		{"but not with those of earlier", requests(request("a", permits(1, 3))), func(tab *table) {
			tab.does(removal(protocol.Release(shared("A", 0), true, false)))
		}, joining(request("b", reads)), "granted 1: b:r=1"},
		{"nor behind a holder of the whole name", requests(request("a", permits(1, 3))), func(tab *table) {
			tab.does(removal(protocol.Release(shared("A", 0), true, false)))
			tab.join(request("b"))
		}, joining(request("c", reads)), "queued: b=1 < c"},
		{"permits of several numbers wait together", requests(request("a"), request("b", permits(1, 3))), nil,
			joining(request("c", permits(5, 9))), "queued: a=0 < b c"},
		{"it extends the last place of its session", requests(request("b"), request("a", members(2))), nil,
			behind("a", request("a1", members(3))), "queued behind 2: b=0 < a*5"},
		{"not behind another place", requests(request("b"), request("a"), request("b1")), nil,
			behind("a", request("a1")), "queued: b=0 < a b1 a1"},
		{"nor one that is gone", requests(request("b"), request("a"), request("a1")), func(tab *table) {
			tab.does(removal(protocol.Undo("A", "n", "a")))
		}, behind("a", request("a2")), "queued: b=0 < a1 a2"},
		{"nor where what stood behind has gone", requests(request("b"), request("a"), request("b1")), func(tab *table) {
			tab.does(removal(protocol.Undo("B", "n", "b1")))
		}, behind("a", request("a1")), "queued: b=0 < a a1"},
		{"nor that of another session", requests(request("b"), request("b1")), nil,
			behind("b1", request("a1")), "queued: b=0 < b1 a1"},
		{"nor beyond the members that a place may have", requests(request("b"), request("a", members(255))), nil,
			behind("a", request("a1", members(2))), "queued: b=0 < a*255 a1*2"},
		{"up to that number", requests(request("b"), request("a", members(255))), nil,
			behind("a", request("a1")), "queued behind 255: b=0 < a*256"},
		{"what it would extend has the name by now", requests(request("a")), nil,
			behind("a", request("a1")), "queued: a=0 < a1"},
		{"a free name is taken all the same", requests(), func(tab *table) {
			tab.Put(protocol.Row{Name: "n", Head: 1, Next: 1}, nil, nil)
		}, behind("a", request("a1")), "granted 0: a1=0"},
		{"the whole name collides with nothing", requests(request("a", permits(1, 3))), nil, joining(request("b")),
			"queued: a:1/3=0 < b"},
	})
}

func TestReenter(t *testing.T) {
	back := request("b", owned("A", "a"))
	run(t, []row{
		{"the owner comes back in another session, before all waiters", requests(request("a"), request("c")), nil,
			reentering(back), "reenters 2+: b=2 < c; tell A a; seize a!"},
		{"another thread does not", requests(request("a")), nil, reentering(request("b", owned("A", "other"))),
			"no: a=0"},
		{"nor another host", requests(request("a")), nil, reentering(request("b", owned("other", "a"))), "no: a=0"},
		{"nor a client that has the name already", requests(request("a")), nil,
			reentering(request("a2", owned("A", "a"))), "no: a=0"},
		{"nor one that wants a share", requests(request("a")), nil, reentering(request("b", owned("A", "a"), reads)),
			"no: a=0"},
		{"a reader is not taken over", requests(request("a", reads)), nil, reentering(back), "no: a:r=0"},
		{"a free name is not reentered", requests(request("a")), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), false, false)))
		}, reentering(back), "no: free"},
		{"a guarded hold stays", requests(request("a")), func(tab *table) { tab.guarded = "a" }, reentering(back),
			"error: another transaction has locked the row"},
		{"a rest goes on", requests(request("a", rests)), nil, reentering(back),
			"reenters 1: b=1 rests 4; tell A a; seize a!"},
		{"unless the request has its own", requests(request("a", rests)), later(2),
			reentering(request("b", owned("A", "a"), rests)),
			"reenters 3: b=3 rests 5; tell A a; seize a!"},
		{"a fixed lease of the old holder is over", requests(request("a", leased)), nil, reentering(back),
			"reenters 1: b=1; tell A a; seize a!"},
	})
}

func TestANameWithoutARowHasNothing(t *testing.T) {
	h := held("A", 0)
	for says, do := range map[string]func(n *protocol.Name) (string, error){
		"Release": removal(protocol.Release(h, true, false)),
		"Undo":    removal(protocol.Undo("A", "n", "a")),
		"TakeOver": removal(protocol.TakeOver("B", "n", protocol.Holder{Session: "A", Attempt: "a",
			Grant: protocol.Grant{Token: began}})),
		"Break": removal(protocol.Break("B", "n", protocol.Holder{Session: "A", Attempt: "a",
			Grant: protocol.Grant{Token: began}}, protocol.Event{})),
		"Nothing": removal(protocol.TakeOver("B", "n", protocol.Holder{})),
		"Reenter": reentering(request("b", owned("A", "a"))),
		"Ask": func(n *protocol.Name) (string, error) {
			asked, err := protocol.Ask{Reason: "why"}.Apply(n)
			return fmt.Sprint(asked.Done()), err
		},
		"EndRest": func(n *protocol.Name) (string, error) {
			ended, err := protocol.EndRest{}.Apply(n)
			return fmt.Sprint(ended.Done()), err
		},
		"Announce":  plainly(protocol.Announce{Held: h}),
		"Extend":    extending(h, tick),
		"Downgrade": downgrading(h),
		"Upgrade":   upgrading(h, "a"),
		"Raise":     raising(h, "a", 0),
		"Detach":    detaching(h, protocol.Detachment{Token: began}),
	} {
		tab := newTable(t)
		switch got := tab.does(do); got {
		case "false: free", "no: free", "error: not held by this client and token":
		default:
			t.Errorf("%s: %s", says, got)
		}
		if len(tab.All()) > 0 {
			t.Errorf("%s has made a row", says)
		}
	}
}
