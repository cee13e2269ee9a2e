package protocol_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
)

// holder is what was seen of an attempt; with token -1 it waits.
func holder(session, attempt string, token int64) protocol.Holder {
	h := protocol.Holder{Session: session, Attempt: attempt}
	if token >= 0 {
		h.Grant.Token = began + token
	}
	return h
}

func TestRelease(t *testing.T) {
	guarded := func(tab *table) { tab.guarded = "a" }
	run(t, []row{
		{"frees the name", requests(request("a")), nil, removal(protocol.Release(held("A", 0), false, false)),
			"true: free"},
		{"hands it to the first", requests(request("a"), request("b"), request("c")), nil,
			removal(protocol.Release(held("A", 0), true, false)), "true: b=3 < c; to b=3+; tell B b=3+"},
		{"not by another token", requests(request("a")), nil, removal(protocol.Release(held("A", 1), false, false)),
			"false: a=0"},
		{"nor by another session", requests(request("a")), nil, removal(protocol.Release(held("B", 0), false, false)),
			"false: a=0"},
		{"nor as a share", requests(request("a")), nil, removal(protocol.Release(shared("A", 0), false, false)),
			"false: a=0"},
		{"nor a share as the whole name", requests(request("a", reads)), nil,
			removal(protocol.Release(held("A", 0), false, false)), "false: a:r=0"},
		{"nor without a token", requests(request("a", reads)), nil, removal(protocol.Release(shared("A", -began), false,
			false)), "false: a:r=0"},
		{"a share leaves the others", requests(request("a", reads), request("b", reads)), nil,
			removal(protocol.Release(shared("A", 0), false, false)), "true: b:r=1"},
		{"a cohort leaves by its last token", requests(request("a", members(3)), request("b")), nil,
			removal(protocol.Release(held("A", 2), true, false)), "true: b=3; to b=3; tell B b=3"},
		{"and by no other", requests(request("a", members(3))), nil,
			removal(protocol.Release(held("A", 0), true, false)), "false: a=0..2"},
		{"a waiter of the session that asks is answered, not told", requests(request("a1"), request("a2")), nil,
			removal(protocol.Release(held("A", 0), true, false)), "true: a2=2; to a2=2"},
		{"what was guarded leaves when its guard can be seized", requests(request("a")), nil,
			removal(protocol.Release(held("A", 0), false, true)), "true: free; seize a"},
		{"and not before", requests(request("a"), request("b")), guarded,
			removal(protocol.Release(held("A", 0), true, true)),
			"error: another transaction has locked the row"},
		{"a share that was guarded too", requests(request("a", reads), request("b")), guarded,
			removal(protocol.Release(shared("A", 0), true, true)), "error: another transaction has locked the row"},
	})
}

func TestUndo(t *testing.T) {
	guardedUndo := protocol.Undo("A", "n", "a")
	guardedUndo.Guarded = true
	run(t, []row{
		{"gives the lock up", requests(request("a"), request("b")), nil, removal(protocol.Undo("A", "n", "a")),
			"true: b=2; to b=2; tell B b=2"},
		{"or a cohort, whole", requests(request("a", members(2)), request("b")), nil,
			removal(protocol.Undo("A", "n", "a")),
			"true: b=2; to b=2; tell B b=2"},
		{"or a share", requests(request("a", reads), request("b")), nil, removal(protocol.Undo("A", "n", "a")),
			"true: b=2; to b=2; tell B b=2"},
		{"or a place", requests(request("a"), request("b", members(2)), request("c")), nil,
			removal(protocol.Undo("B", "n", "b")), "true: a=0 < c"},
		{"which lets those behind it in", requests(request("a", reads), request("b"), request("c", reads)), nil,
			removal(protocol.Undo("B", "n", "b")), "true: a:r=0 c:r=3; to c=3; tell C c=3"},
		{"or makes another the first, who is told while the name rests", requests(request("a", rests), request("b"),
			request("c")), func(tab *table) { tab.does(removal(protocol.Release(held("A", 0), true, false))) },
			removal(protocol.Undo("B", "n", "b")), "true: free < c rests 2; tell C c"},
		{"an attempt without a trace is none", requests(request("a"), request("b")), nil,
			removal(protocol.Undo("C", "n", "c")), "false: a=0 < b"},
		{"nor is one of another session", requests(request("a"), request("b")), nil,
			removal(protocol.Undo("C", "n", "b")), "false: a=0 < b"},
		{"what was never guarded seizes no guard", requests(request("a")), func(tab *table) { tab.guarded = "a" },
			removal(protocol.Undo("A", "n", "a")), "true: free"},
		{"what was guarded leaves when its guard can be seized, and not before", requests(request("a"), request("b")),
			func(tab *table) { tab.guarded = "a" },
			removal(guardedUndo), "error: another transaction has locked the row"},
	})
}

func TestTakeOver(t *testing.T) {
	run(t, []row{
		{"the dead lose the name", requests(request("a"), request("b")), over("A"),
			removal(protocol.TakeOver("C", "n", holder("A", "a", 0))),
			"true: b=2; to b=2; tell B b=2; seize a"},
		{"the living do not", requests(request("a"), request("b")), nil,
			removal(protocol.TakeOver("C", "n", holder("A", "a", 0))), "false: a=0 < b"},
		{"unless a fixed lease is over", requests(request("a", leased), request("b")), later(3),
			removal(protocol.TakeOver("B", "n", holder("A", "a", 0))),
			"true: b=5; to b=5; seize a"},
		{"and not before", requests(request("a", leased), request("b")), later(2),
			removal(protocol.TakeOver("B", "n", holder("A", "a", 0))),
			"false: a=0(1) < b"},
		{"a share's lease ends as well", requests(request("a", reads, leased), request("b")), later(3),
			removal(protocol.TakeOver("B", "n", holder("A", "a", 0))), "true: b=5; to b=5; seize a"},
		{"another holder than was seen stays", requests(request("a"), request("b")), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), true, false)))
			tab.over = "A"
		}, removal(protocol.TakeOver("C", "n", holder("A", "a", 0))), "false: b=2"},
		{"a cohort of the dead leaves whole", requests(request("a", members(2)), request("b")), over("A"),
			removal(protocol.TakeOver("C", "n", holder("A", "a", 1))), "true: b=2; to b=2; tell B b=2; seize a"},
		{"a guarded hold stays though its session is dead", requests(request("a"), request("b")),
			func(tab *table) { tab.over, tab.guarded = "A", "a" },
			removal(protocol.TakeOver("C", "n", holder("A", "a", 0))), "error: another transaction has locked the row"},
		{"a dead waiter lets those behind it in", requests(request("a", reads), request("b"), request("c", reads)),
			over("B"),
			removal(protocol.TakeOver("C", "n", holder("B", "b", -1))), "true: a:r=0 c:r=3; to c=3"},
		{"a living waiter stays", requests(request("a", reads), request("b"), request("c", reads)), nil,
			removal(protocol.TakeOver("C", "n", holder("B", "b", -1))), "false: a:r=0 < b c"},
		{"of nobody it hands over what is free", requests(request("a", rests), request("b")), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), true, false)))
			tab.now += 3
		}, removal(protocol.TakeOver("C", "n", protocol.Holder{})), "true: b=5; to b=5; tell B b=5"},
		{"and nothing that is held", requests(request("a"), request("b")), nil,
			removal(protocol.TakeOver("C", "n", protocol.Holder{})), "false: a=0 < b"},
	})
}

func TestBreak(t *testing.T) {
	e := protocol.Event{Kind: "broken"}
	run(t, []row{
		{"a living holder loses the name, and is told", requests(request("a"), request("b")), nil,
			removal(protocol.Break("C", "n", holder("A", "a", 0), e)),
			"true: b=2; to b=2; tell A a; tell B b=2; seize a!; event broken; wake"},
		{"or its share", requests(request("a", reads), request("b", reads)), nil,
			removal(protocol.Break("C", "n", holder("B", "b", 1), e)),
			"true: a:r=0; tell B b; seize b!; event broken; wake"},
		{"or its place", requests(request("a"), request("b")), nil,
			removal(protocol.Break("C", "n", holder("B", "b", -1), e)),
			"true: a=0; tell B b; event broken; wake"},
		{"another holder than was seen stays", requests(request("a")), nil,
			removal(protocol.Break("C", "n", holder("A", "a", 1), e)), "false: a=0"},
		{"a place that is none any more is not broken", requests(request("a")), nil,
			removal(protocol.Break("C", "n", holder("A", "a", -1), e)), "false: a=0"},
		{"a guarded hold stays", requests(request("a")), func(tab *table) { tab.guarded = "a" },
			removal(protocol.Break("C", "n", holder("A", "a", 0), e)),
			"error: another transaction has locked the row"},
		{"a cohort is broken whole", requests(request("a", members(3))), nil,
			removal(protocol.Break("C", "n", holder("A", "a", 2), e)),
			"true: free; tell A a; seize a!; event broken; wake"},
	})
}
