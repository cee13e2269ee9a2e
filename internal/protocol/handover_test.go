package protocol_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
)

// dying are the sessions that are over their time once all have joined.
func dying(sessions string) func(tab *table) { return over(sessions) }

func TestHandOver(t *testing.T) {
	release := removal(protocol.Release(held("A", 0), true, false))
	releaseShare := removal(protocol.Release(shared("A", 0), true, false))
	a := request("a")
	run(t, []row{
		{"one whole name at a time", requests(a, request("b"), request("c")), nil, release,
			"true: b=3 < c; to b=3+; tell B b=3+"},
		{"neighbouring readers together", requests(a, request("b", reads), request("c", reads), request("d"),
			request("e", reads)), nil, release,
			"true: b:r=5 c:r=6 < d e; to b=5+; to c=6+; tell B b=5+; tell C c=6+"},
		{"no reader passes a writer", requests(request("a", reads), request("b", reads), request("c"),
			request("d", reads)), nil, releaseShare,
			"true: b:r=1 < c d"},
		{"permits while they last, in order", requests(a, request("b", permits(2, 3)), request("c", permits(2, 3)),
			request("d", permits(1, 3))), nil, release,
			"true: b:2/3=4 < c d; to b=4+; tell B b=4+"},
		{"a smaller number that is stated counts for those behind", requests(a, request("b", permits(1, 2)),
			request("c", permits(1, 9)), request("d", permits(1, 9))),
			nil, release, "true: b:1/2=4 c:1/9=5 < d; to b=4+; to c=5+; tell B b=4+; tell C c=5+"},
		{"a number of those that have left does not", requests(request("a", permits(1, 2)), request("b", permits(1, 9)),
			request("c", permits(7, 9))), nil, releaseShare,
			"true: b:1/9=1 c:7/9=3; to c=3; tell C c=3"},
		{"but still does of those that are left", requests(request("a", permits(1, 4)), request("b", permits(1, 3)),
			request("c", permits(1, 9)), request("d", permits(7, 9))),
			nil, releaseShare, "true: b:1/3=1 c:1/9=2 < d"},
		{"the dead make way", requests(a, request("b"), request("c"), request("d")), dying("BC"), release,
			"true: d=4; to d=4; tell D d=4"},
		{"where they do not fit too", requests(request("a", reads), request("b", reads), request("c"),
			request("d", reads)), dying("C"), releaseShare,
			"true: b:r=1 d:r=4; to d=4; tell D d=4"},
		{"the dead behind the whole name wait for the next", requests(a, request("b"), request("c")), dying("C"),
			release, "true: b=3 < c; to b=3+; tell B b=3+"},
		{"the dead alone leave it free", requests(a, request("b"), request("c", members(3))), dying("BC"), release,
			"true: free"},
		{"a cohort has a token for each member", requests(a, request("b", members(3)), request("c")), nil, release,
			"true: b=3..5 < c; to b=3..5+; tell B b=3..5+"},
		{"what rests is handed to nobody, and the first looks again", requests(request("a", rests), request("b"),
			request("c")), dying("B"), release,
			"true: free < b c rests 2; tell C c"},
		{"the next but one learns of a lease", requests(a, request("b", leased), request("c")), nil, release,
			"true: b=3(5) < c; to b=3(5)+; tell B b; tell C c"},
		{"and of a rest", requests(a, request("b", rests), request("c")), nil, release,
			"true: b=3 < c rests 5; to b=3+; tell B b=3+; tell C c"},
		{"the end of a rest counts", requests(request("a", rests), request("b")), later(3), release,
			"true: b=5; to b=5; tell B b=5"},
		{"places that were deleted by hand count no more", requests(a, request("b", members(2)), request("c")),
			func(tab *table) {
				row, _ := tab.Row("n")
				tab.Put(row, nil, nil)
			}, release, "true: free"},
		{"a place that was deleted by hand is passed", requests(a, request("b"), request("c")), func(tab *table) {
			row, _ := tab.Row("n")
			tab.Put(row, tab.Places("n")[1:], nil)
		}, release, "true: c=3 and counts 1 waiters; to c=3+; tell C c=3+"},
	})
}

// cutShort is a source whose lists a server has answered empty.
type cutShort struct{ protocol.Source }

func (cutShort) Places(int64, int) ([]protocol.Place, error) { return nil, nil }

func (cutShort) Shares(tokens ...int64) (shares []protocol.Share, err error) {
	for _, token := range tokens {
		shares = append(shares, protocol.Share{Session: "A", Token: token, Units: 1, Of: 2})
	}
	return shares, nil
}

func (cutShort) Tally() (protocol.Tally, error) {
	return protocol.Tally{Waiters: 2, Units: 2, First: 1, Last: 2, Smallest: 2, Largest: 3}, nil
}

func TestAHandOverBelievesNoListThatWasCutShort(t *testing.T) {
	for what, row := range map[string]protocol.Row{
		"places": {Name: "n", Session: "A", Attempt: "a", First: 1, Last: 1, Token: 1, Waiters: 2, Head: 1, Next: 3},
		"shares": {Name: "n", Token: 2, Units: 2, Capacity: 2, Mixed: true, Head: 1, Next: 1},
	} {
		n := protocol.Open(row, began, cutShort{})
		h := protocol.Held{Name: "n", Session: "A", Token: 1, Shared: what == "shares"}
		if left, err := protocol.Release(h, true, false).Apply(n); !errors.Is(err, protocol.ErrRetry) {
			t.Errorf("without its %s the release says %+v, %v", what, left, err)
		}
	}
}

func TestAHandOverPassesAnyNumberOfTheDead(t *testing.T) {
	tab := newTable(t)
	tab.join(request("a"))
	for i := range 50 {
		tab.join(request("b" + strings.Repeat("x", i)))
	}
	tab.join(request("c"), request("b"))
	tab.over = "B"
	got := tab.does(removal(protocol.Release(held("A", 0), true, false)))
	if want := "true: c=53 < b; to c=53+; tell C c=53+"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	row, _ := tab.Row("n")
	if places := tab.Places("n"); row.Head != places[0].Ticket {
		t.Errorf("the queue begins at %d, its row says %d", places[0].Ticket, row.Head)
	}
}
