package protocol_test

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
)

func asking(n *protocol.Name) (string, error) {
	asked, err := protocol.Ask{Reason: "?", Event: protocol.Event{Kind: "asked"}}.Apply(n)
	return fmt.Sprint(asked.Holders), err
}

func TestAsk(t *testing.T) {
	run(t, []row{
		{"a holder is asked", requests(request("a"), request("b")), nil, asking, "1: a=0? < b; tell A a; event asked"},
		{"all readers are", requests(request("a", reads), request("b", reads)), nil, asking,
			"2: a:r=0? b:r=1?; tell A a; tell B b; event asked"},
		{"nobody where nobody holds it", requests(request("a")), func(tab *table) {
			tab.does(removal(protocol.Release(held("A", 0), false, false)))
		}, asking, "0: free"},
		{"the next holder is not", requests(request("a"), request("b")), func(tab *table) { tab.does(asking) },
			removal(protocol.Release(held("A", 0), true, false)), "true: b=2; to b=2; tell B b=2"},
	})
}

func TestShow(t *testing.T) {
	showing := func(last int64) func(n *protocol.Name) (string, error) {
		return func(n *protocol.Name) (string, error) {
			shown, err := protocol.Show{Token: began + last}.Apply(n)
			return fmt.Sprint(shown.Done(), " ", protocol.Reason(n.Asked)), err
		}
	}
	run(t, []row{
		{"the client of a cohort is asked for its member", requests(request("a", members(3))), nil, showing(2),
			"true : a=0..2\x01; tell A a"},
		{"a second time too", requests(request("a", members(3))), func(tab *table) { tab.does(showing(2)) },
			showing(2), "true : a=0..2\x01; tell A a"},
		{"which does not replace the reason of an Ask", requests(request("a", members(3))),
			func(tab *table) { tab.does(asking) }, showing(2), "true ?: a=0..2?; tell A a"},
		{"the answer ends it", requests(request("a", members(3))), func(tab *table) { tab.does(showing(2)) },
			plainly(protocol.Detach{Held: held("A", 2), Member: protocol.Detachment{Token: began}}),
			": a=0"},
		{"not that of a member", requests(request("a", members(3))), nil, showing(1), "false : a=0..2"},
		{"nor of a plain holder", requests(request("a")), nil, showing(0), "false : a=0"},
	})
}

func TestEndRest(t *testing.T) {
	ending := func(token int64) func(n *protocol.Name) (string, error) {
		return func(n *protocol.Name) (string, error) {
			ended, err := protocol.EndRest{Token: token, Event: protocol.Event{Kind: "ended"}}.Apply(n)
			return fmt.Sprint(ended.Done()), err
		}
	}
	free := func(tab *table) { tab.does(removal(protocol.Release(held("A", 0), true, false))) }
	run(t, []row{
		{"a rest ends, and nothing is granted yet", requests(request("a", rests), request("b")), free, ending(0),
			"true: free < b; event ended; wake"},
		{"while the name is held too", requests(request("a", rests)), nil, ending(began),
			"true: a=0; event ended; wake"},
		{"not that of another grant", requests(request("a", rests)), nil, ending(began + 1), "false: a=0 rests 4"},
		{"not one that is over", requests(request("a", rests)), later(4), ending(0), "false: a=0"},
	})
}

func TestAnnounce(t *testing.T) {
	announcing := func(h protocol.Held) func(n *protocol.Name) (string, error) {
		return plainly(protocol.Announce{Held: h, Event: protocol.Event{Kind: "news"}})
	}
	run(t, []row{
		{"those who watch hear of it", requests(request("a")), nil, announcing(held("A", 0)),
			": a=0; event news; wake"},
		{"of a reader as well", requests(request("a", reads)), nil, announcing(shared("A", 0)),
			": a:r=0; event news; wake"},
		{"not from one that does not hold the name", requests(request("a")), nil, announcing(held("B", 0)), notHeld},
		{"nor by an earlier token", requests(request("a")), nil, announcing(held("A", -1)), notHeld},
	})
}
