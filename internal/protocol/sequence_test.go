package protocol_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
)

// inOneGo checks that a Sequence of the last two ops, and one of the last three, leave what they
// have left one by one. The latest one was taken in a state, and led to after.
func inOneGo(states []state, in int, latest did, after world) error {
	ops := []did{latest}
	for at := in; len(ops) < 3 && ops[0].op != nil && states[at].did.op != nil; at = states[at].from {
		if !latest.by(states[at].world) || !states[at].did.by(states[at].world) {
			return nil // its session is not alive
		}
		ops = append([]did{states[at].did}, ops...)
		if err := states[states[at].from].play(ops, after); err != nil {
			return fmt.Errorf("%w, in a sequence of the last %d", err, len(ops))
		}
	}
	return nil
}

// by reports whether the session that asked is alive: a Sequence takes it for that.
func (d did) by(w world) bool { return w.alive(d.op.By()) }

// play runs ops as a Sequence.
func (w world) play(ops []did, want world) error {
	var all protocol.Sequence
	var left protocol.Changes
	for _, d := range ops {
		all = append(all, d.op)
		left.Events, left.Notices = append(left.Events, d.left.Events...), append(left.Notices, d.left.Notices...)
		left.Handoffs = append(left.Handoffs, d.left.Handoffs...)
		left.WakesWatchers = left.WakesWatchers || d.left.WakesWatchers
	}
	after, got := w.run(all)
	switch failed := ops[len(ops)-1].failed; {
	case failed != nil && fmt.Sprint(got.failed) == fmt.Sprint(failed):
		want = w // nothing was done
		left = protocol.Changes{}
	case got.failed != nil || failed != nil:
		return fmt.Errorf("it failed with %v, not with %v", got.failed, failed)
	default:
		for i, d := range ops {
			if !sameResult(got.result.Each[i], d.result) {
				return fmt.Errorf("op %d returned %+v, alone %+v", i, got.result.Each[i], d.result)
			}
		}
	}
	switch {
	case after.row != want.row:
		return fmt.Errorf("it left the row %+v, not %+v", after.row, want.row)
	case !slices.Equal(after.places, want.places):
		return fmt.Errorf("it left the places %+v, not %+v", after.places, want.places)
	case !slices.Equal(after.shares, want.shares):
		return fmt.Errorf("it left the shares %+v, not %+v", after.shares, want.shares)
	case !slices.Equal(got.left.Notices, left.Notices):
		return fmt.Errorf("it told %+v, not %+v", got.left.Notices, left.Notices)
	case !slices.Equal(got.left.Events, left.Events) || got.left.WakesWatchers != left.WakesWatchers:
		return fmt.Errorf("it recorded %+v, not %+v", got.left.Events, left.Events)
	case !slices.Equal(got.left.Handoffs, left.Handoffs):
		return fmt.Errorf("it granted %+v, not %+v", got.left.Handoffs, left.Handoffs)
	}
	return w.writes(got.left)
}

func sameResult(a, b protocol.Result) bool {
	return a.Outcome == b.Outcome && a.Ahead == b.Ahead && a.Grant == b.Grant && a.Holders == b.Holders &&
		slices.Equal(a.Next, b.Next)
}

// writes checks that changes can be written, each row once: what goes is there, and what is new is
// not.
func (w world) writes(left protocol.Changes) error {
	rows := map[string]int{}
	for _, p := range w.places {
		rows[fmt.Sprint("place ", p.Ticket)]++
	}
	for _, p := range left.GonePlaces {
		rows[fmt.Sprint("place ", p.Ticket)]--
	}
	for _, p := range left.SetPlaces {
		if rows[fmt.Sprint("place ", p.Ticket)] != 1 {
			return fmt.Errorf("it changes a place with ticket %d, which is not there", p.Ticket)
		}
	}
	for _, p := range left.PutPlaces {
		rows[fmt.Sprint("place ", p.Ticket)]++
	}
	for _, s := range w.shares {
		rows[fmt.Sprint("share ", s.Token)]++
	}
	for _, s := range left.GoneShares {
		rows[fmt.Sprint("share ", s.Token)]--
	}
	for _, s := range left.SetShares {
		if rows[fmt.Sprint("share ", s.Token)] != 1 {
			return fmt.Errorf("it changes a share with token %d, which is not there", s.Token)
		}
	}
	for _, s := range left.PutShares {
		rows[fmt.Sprint("share ", s.Token)]++
	}
	for row, count := range rows {
		if count < 0 || count > 1 {
			return fmt.Errorf("it writes %s %d times", row, count)
		}
	}
	return nil
}

func release(h protocol.Held) protocol.Removal { return protocol.Release(h, true, false) }

// sequence runs ops as one, and tells of their outcomes.
func sequence(ops ...protocol.Op) func(n *protocol.Name) (string, error) {
	return func(n *protocol.Name) (string, error) {
		result, err := protocol.Sequence(ops).Apply(n)
		said := ""
		for _, r := range result.Each {
			said += fmt.Sprint(r.Outcome)
			for _, next := range r.Next {
				said += next.Attempt
			}
		}
		return said, err
	}
}

func join(attempt string, options ...func(*protocol.Request)) protocol.Join {
	return protocol.Join{Request: request(attempt, options...)}
}

func TestSequence(t *testing.T) {
	two := permits(1, 2)
	run(t, []row{
		{
			says:  "each op finds what those before it took, and a place that one of them put",
			given: requests(request("a", two)),
			do:    sequence(join("a1", two), join("a2", two), join("a3", two), release(shared("A", 0))),
			want:  "2112a2: a1:1/2=1 a2:1/2=2 < a3; to a2=2+",
		},
		{
			says:  "and gives up what one of them took",
			given: requests(request("a", two)),
			do:    sequence(join("a1", two), release(shared("A", 1)), release(shared("A", 0)), join("a2")),
			want:  "2222: a2=2",
		},
		{
			says:  "each release hands over by itself, and every session is told",
			given: requests(request("a", two), request("a1", two), request("b", two), request("c", two)),
			do:    sequence(release(shared("A", 0)), release(shared("A", 1))),
			want:  "2b2c: b:1/2=4 c:1/2=5; to b=4+; to c=5; tell B b=4+; tell C c=5",
		},
		{
			says:  "a share leaves once",
			given: requests(request("a", two)),
			do:    sequence(release(shared("A", 0)), release(shared("A", 0))),
			want:  "20: free",
		},
		{
			says:  "a place leaves once",
			given: requests(request("a"), request("b")),
			do: sequence(protocol.Undo("B", "n", "b"), protocol.Undo("B", "n", "b"), release(held("A", 0)), join("b1"),
				protocol.Undo("B", "n", "b1"), protocol.Undo("B", "n", "b1")),
			want: "202220: free",
		},
		{
			says:  "none passes those that wait",
			given: requests(request("a", reads), request("b")),
			do:    sequence(join("a1", reads), join("a2", reads), release(shared("A", 0))),
			want:  "112b: b=2 < a1 a2; to b=2+; tell B b=2+",
		},
		{
			says:  "one that is refused undoes them all",
			given: requests(request("a", reads)),
			do:    sequence(join("a1", reads), join("b", two), release(shared("A", 0))),
			want:  "error: readers and permits do not share a name",
		},
	})
}

// counting counts the reads of a source.
type counting struct {
	protocol.Source
	read map[string]int
}

func (c counting) Places(after int64, limit int) ([]protocol.Place, error) {
	c.read["Places"]++
	return c.Source.Places(after, limit)
}

func (c counting) Shares(tokens ...int64) ([]protocol.Share, error) {
	c.read["Shares"]++
	return c.Source.Shares(tokens...)
}

// While the ops run, the name's row is locked: what is read then is read at once.
func TestASequenceReadsItsSharesAndItsQueueOnce(t *testing.T) {
	tab := newTable(t)
	var ops protocol.Sequence
	for i := range int64(40) {
		tab.join(request(fmt.Sprint("a", i), permits(1, 40)))
		ops = append(ops, release(shared("A", i)))
	}
	for i := range 50 {
		tab.join(request(fmt.Sprint("b", i), permits(1, 40)))
	}
	read := map[string]int{}
	said := tab.does(func(n *protocol.Name) (string, error) {
		_, err := ops.Apply(protocol.Reading(n, func(s protocol.Source) protocol.Source { return counting{s, read} }))
		return "", err
	})
	if row, _ := tab.Row("n"); row.Units != 40 || row.Waiters != 10 || row.Session != "" {
		t.Errorf("40 waiters do not have what was released: %s", said)
	}
	if want := map[string]int{"Places": 1, "Shares": 1}; !reflect.DeepEqual(read, want) {
		t.Errorf("read %v, want %v", read, want)
	}
}
