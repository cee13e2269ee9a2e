package protocol_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
)

func extending(h protocol.Held, d time.Duration) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		extended, err := protocol.Extend{Held: h, For: d}.Apply(n)
		return fmt.Sprint(int64(extended.Grant.Lease / tick)), err
	}
}

func downgrading(h protocol.Held) func(n *protocol.Name) (string, error) {
	return plainly(protocol.Downgrade{Held: h})
}

func upgrading(h protocol.Held, attempt string) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		upgraded, err := protocol.Upgrade{Held: h, Attempt: attempt}.Apply(n)
		if !upgraded.Done() {
			return "no", err
		}
		return grant(upgraded.Grant), err
	}
}

func raising(h protocol.Held, attempt string, to int64) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		raised, err := protocol.Raise{Held: h, Attempt: attempt, To: began + to}.Apply(n)
		return fmt.Sprint(raised.Grant.Token - began), err
	}
}

func detaching(h protocol.Held, d protocol.Detachment) func(n *protocol.Name) (string, error) {
	return plainly(protocol.Detach{Held: h, Member: d})
}

func moving(h protocol.Held, attempt string, to protocol.Request) func(n *protocol.Name) (string, error) {
	return plainly(protocol.Move{Held: h, Attempt: attempt, To: to})
}

const notHeld = "error: not held by this client and token"

func TestExtend(t *testing.T) {
	run(t, []row{
		{"a lease ends later", requests(request("a", leased)), later(2), extending(held("A", 0), 7*tick), "7: a=0(7)"},
		{"but never earlier", requests(request("a", leased)), nil, extending(held("A", 0), 2*tick), "4: a=0(4)"},
		{"that of a share too", requests(request("a", reads, leased)), nil, extending(shared("A", 0), 7*tick),
			"7: a:r=0(7)"},
		{"which never ends earlier", requests(request("a", reads, leased)), nil, extending(shared("A", 0), 2*tick),
			"4: a:r=0(4)"},
		{"one that is over does not", requests(request("a", leased)), later(4), extending(held("A", 0), 7*tick),
			notHeld},
		{"nor one that is none", requests(request("a")), nil, extending(held("A", 0), 7*tick), notHeld},
		{"nor another's", requests(request("a", leased)), nil, extending(held("B", 0), 7*tick), notHeld},
		{"nor by the token of another", requests(request("a", leased)), nil, extending(held("A", 1), 7*tick), notHeld},
		{"nor a share by that", requests(request("a", reads, leased)), nil, extending(shared("A", 1), 7*tick), notHeld},
		{"nor the whole name as a share", requests(request("a", leased)), nil, extending(shared("A", 0), 7*tick),
			notHeld},
	})
}

func TestDowngrade(t *testing.T) {
	run(t, []row{
		{"a writer becomes a reader, with its token and lease", requests(request("a", leased)), nil,
			downgrading(held("A", 0)), ": a:r=0(4)"},
		{"and lets the readers in that wait", requests(request("a"), request("b", reads), request("c"),
			request("d", reads)), nil, downgrading(held("A", 0)),
			": a:r=0 b:r=4 < c d; to b=4+; tell B b=4+"},
		{"no writer", requests(request("a"), request("b"), request("c", reads)), nil, downgrading(held("A", 0)),
			": a:r=0 < b c"},
		{"nobody while the name rests", requests(request("a", rests), request("b", reads)), nil,
			downgrading(held("A", 0)), ": a:r=0 < b rests 3; tell B b"},
		{"it is safe to repeat", requests(request("a", reads)), nil, downgrading(shared("A", 0)), ": a:r=0"},
		{"not by another's token", requests(request("a")), nil, downgrading(held("A", 1)), notHeld},
		{"not of a cohort", requests(request("a", members(2))), nil, downgrading(held("A", 1)), notHeld},
		{"not where permits are waited for", requests(request("a"), request("b", permits(1, 3))), nil,
			downgrading(held("A", 0)),
			"error: readers and permits do not share a name"},
		{"permits of earlier do not count", requests(request("a", permits(1, 3))), func(tab *table) {
			tab.does(removal(protocol.Release(shared("A", 0), true, false)))
			tab.join(request("b"))
		}, downgrading(held("B", 1)), ": b:r=1"},
	})
}

func TestUpgrade(t *testing.T) {
	run(t, []row{
		{"a reader alone becomes a writer, with a new token, before all waiters", requests(request("a", reads, leased),
			request("b"), request("c", reads)), nil,
			upgrading(shared("A", 0), "a"), "3(2)+: a=3(2) < b c"},
		{"not beside another", requests(request("a", reads), request("b", reads)), nil, upgrading(shared("A", 0), "a"),
			"no: a:r=0 b:r=1"},
		{"it is safe to repeat", requests(request("a")), nil, upgrading(shared("A", 99), "a"), "0: a=0"},
		{"not by another's token", requests(request("a", reads)), nil, upgrading(shared("B", 0), "a"), notHeld},
		{"nor by another's attempt", requests(request("a", reads)), nil, upgrading(shared("A", 0), "b"), notHeld},
		{"tokens rise though the clock stands behind them", requests(request("a", reads)),
			func(tab *table) { tab.now = began - 50 },
			upgrading(shared("A", 0), "a"), "1: a=1"},
	})
}

func TestRaise(t *testing.T) {
	run(t, []row{
		{"a token rises", requests(request("a")), nil, raising(held("A", 0), "a", 30), "30: a=30"},
		{"and never falls", requests(request("a")), nil, raising(held("A", 0), "a", -30), "0: a=0"},
		{"it is safe to repeat", requests(request("a")), func(tab *table) { tab.does(raising(held("A", 0), "a", 30)) },
			raising(held("A", 0), "a", 30), "30: a=30"},
		{"not of another", requests(request("a")), nil, raising(held("B", 0), "a", 30), notHeld},
		{"not of another lock of the session, whose token is that of the repetition",
			requests(request("a"), request("a2")), func(tab *table) {
				tab.does(removal(protocol.Release(held("A", 0), true, false)))
			}, raising(held("A", 0), "a", 2), notHeld},
		{"not of a cohort", requests(request("a", members(2))), nil, raising(held("A", 1), "a", 30), notHeld},
		{"not of a share", requests(request("a", reads)), nil, raising(shared("A", 0), "a", 30), notHeld},
		{"the next grant is above it", requests(request("a"), request("b")),
			func(tab *table) { tab.does(raising(held("A", 0), "a", 30)) },
			removal(protocol.Release(held("A", 30), true, false)), "true: b=31; to b=31; tell B b=31"},
	})
}

func TestDetach(t *testing.T) {
	cohort := request("a", members(4))
	rest := request("a9", members(2))
	second := protocol.Detachment{Token: began + 1, Host: "A", Thread: "t", Behind: rest}
	run(t, []row{
		{"a member alone has the name, those behind it wait before all", requests(cohort, request("b")), nil,
			detaching(held("A", 3), second), ": a=1 < a9*2 b"},
		{"those behind it may have left", requests(cohort, request("b")), nil,
			detaching(held("A", 3), protocol.Detachment{Token: began + 1}), ": a=1 < b"},
		{"the last has nobody behind it", requests(cohort), nil,
			detaching(held("A", 3), protocol.Detachment{Token: began + 3}), ": a=3"},
		{"it is safe to repeat", requests(cohort), func(tab *table) { tab.does(detaching(held("A", 3), second)) },
			detaching(held("A", 3), second), ": a=1 < a9*2"},
		{"once the member has released it is too late", requests(cohort), func(tab *table) {
			tab.does(detaching(held("A", 3), second))
			tab.does(removal(protocol.Release(held("A", 1), true, false)))
		}, detaching(held("A", 3), second), notHeld},
		{"not by another last token", requests(cohort), nil, detaching(held("A", 2), second), notHeld},
		{"nor in another session", requests(cohort), nil, detaching(held("B", 3), second), notHeld},
		{"nor a member after the last", requests(cohort), nil,
			detaching(held("A", 3), protocol.Detachment{Token: began + 4}), notHeld},
		{"nor one before the first", requests(cohort), nil,
			detaching(held("A", 3), protocol.Detachment{Token: began - 1}), notHeld},
		{"in one transition with its release those behind it are next", requests(cohort, request("b")), nil,
			func(n *protocol.Name) (string, error) {
				if _, err := (protocol.Detach{Held: held("A", 3), Member: second}).Apply(n); err != nil {
					return "", err
				}
				return removal(protocol.Release(held("A", 1), true, false))(n)
			}, "true: a9=4..5 < b; to a9=4..5+"},
		{"tokens of those behind it are not given again", requests(cohort), func(tab *table) {
			tab.does(detaching(held("A", 3), protocol.Detachment{Token: began + 1}))
		}, removal(protocol.Release(held("A", 1), true, false)), "true: free"},
	})
}

func TestADetachedMemberIsTheOwner(t *testing.T) {
	tab := newTable(t)
	tab.join(request("a", members(2)))
	tab.does(detaching(held("A", 1), protocol.Detachment{Token: began, Host: "h", Thread: "t",
		Behind: request("a9", members(1))}))
	if row, _ := tab.Row("n"); row.Host != "h" || row.Thread != "t" || row.Attempt != "a" {
		t.Errorf("%+v", row)
	}
}

func TestMove(t *testing.T) {
	to := request("d")
	guarded := func(tab *table) { tab.guarded = "a" }
	again := func(tab *table) { tab.does(moving(held("A", 0), "a", to)) }
	run(t, []row{
		{"another session has the name, with its token", requests(request("a")), nil, moving(held("A", 0), "a", to),
			": d=0; seize a"},
		{"and the first waiter is told, since it ends at another time", requests(request("a"), request("b"),
			request("c")), nil, moving(held("A", 0), "a", to),
			": d=0 < b c; tell B b; seize a"},
		{"the first that lives", requests(request("a"), request("b"), request("c")), over("B"),
			moving(held("A", 0), "a", to), ": d=0 < b c; tell C c; seize a"},
		{"it is safe to repeat", requests(request("a")), again, moving(held("A", 0), "a", to), ": d=0; seize a"},
		{"not to another session meanwhile", requests(request("a")), again, moving(held("A", 0), "a", request("e")),
			notHeld},
		{"not by another's token", requests(request("a")), nil, moving(held("A", 1), "a", to), notHeld},
		{"not of another lock of the session, which came back with the token", requests(request("a")),
			func(tab *table) {
				tab.does(moving(held("A", 0), "a", to))
				tab.does(moving(held("D", 0), "d", request("a2")))
			}, moving(held("A", 0), "a", request("e")), notHeld},
		{"not of a cohort", requests(request("a", members(2))), nil, moving(held("A", 1), "a", to), notHeld},
		{"not of a share", requests(request("a", reads)), nil, moving(held("A", 0), "a", to), notHeld},
		{"not from one that is over its time", requests(request("a")), over("A"), moving(held("A", 0), "a", to),
			notHeld},
		{"not beside a transaction that it guards", requests(request("a")), guarded, moving(held("A", 0), "a", to),
			"error: another transaction has locked the row"},
	})
}
