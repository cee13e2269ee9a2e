package protocol_test

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
)

// steps are all that a world can take, with the requests that may still be sent.
func (w *world) steps(requests []protocol.Request) (steps []step) {
	for _, r := range requests {
		if !w.sent(r.Attempt) && w.alive(r.Session) {
			steps = append(steps, w.asks(r)...)
		}
	}
	holds := w.holds()
	for _, attempt := range slices.Sorted(maps.Keys(holds)) { // in an order that can be repeated
		steps = append(steps, w.leaves(holds[attempt])...)
		steps = append(steps, w.converts(holds[attempt])...)
	}
	for _, p := range w.places {
		h := protocol.Holder{Session: p.Session, Attempt: p.Attempt}
		takeOver := remove("take over the place of "+p.Attempt, protocol.TakeOver("C", "n", h))
		if !w.alive(p.Session) {
			takeOver.loses = p.Attempt
		}
		undo := remove("undo "+p.Attempt, protocol.Undo(p.Session, "n", p.Attempt))
		broken := remove("break the place of "+p.Attempt, protocol.Break("C", "n", h, protocol.Event{}))
		undo.loses, broken.loses = p.Attempt, p.Attempt
		steps = append(steps, takeOver, undo, broken)
	}
	steps = append(steps, remove("hand over", protocol.TakeOver("C", "n", protocol.Holder{})))
	if w.row.Rests > w.now {
		steps = append(steps, step{says: "end the rest", event: func(w *world) { w.row.Rests, w.overdue = 0, true }})
	}
	return append(steps, w.events(requests)...)
}

func (w *world) asks(r protocol.Request) []step {
	steps := []step{
		{says: "join " + r.Attempt, self: r.Session, gets: &r, op: protocol.Join{Request: r}},
		{says: "take " + r.Attempt, self: r.Session, gets: &r, op: protocol.Take{Request: r}},
	}
	for _, p := range w.places {
		if p.Units+r.Units == 0 && p.Session == r.Session && p.Lease+p.MinHold+r.Lease+r.MinHold == 0 {
			steps = append(steps, step{
				says: "join " + r.Attempt + " behind " + p.Attempt, self: r.Session, gets: &r, grows: p.Attempt,
				op: protocol.Join{Request: r, Extends: p.Attempt},
			})
		}
	}
	return steps
}

func remove(says string, r protocol.Removal) step {
	return step{says: says, self: r.Self, hands: true, op: r}
}

// leaves are the ways in which a hold ends, and some in which it must not.
func (w *world) leaves(h hold) []step {
	seen := protocol.Holder{Session: h.session, Attempt: h.attempt, Grant: protocol.Grant{Token: h.last}}
	release := remove("release "+h.attempt, protocol.Release(h.held(), true, false))
	guarded := remove("release "+h.attempt+", which was guarded", protocol.Release(h.held(), true, true))
	undo := remove("undo "+h.attempt, protocol.Undo(h.session, "n", h.attempt))
	broken := remove("break "+h.attempt, protocol.Break("C", "n", seen, protocol.Event{}))
	takeOver := remove("take over "+h.attempt, protocol.TakeOver("C", "n", seen))
	release.loses, guarded.loses, undo.loses, broken.loses = h.attempt, h.attempt, h.attempt, h.attempt
	guarded.seize, broken.seize = true, true
	if !w.alive(h.session) || h.ends != 0 && h.ends <= w.now {
		takeOver.loses, takeOver.seize = h.attempt, true
	}
	late := h.held()
	late.Token = 1
	other := h.held()
	other.Session = "X"
	return []step{
		release, guarded, undo, broken, takeOver,
		remove("release "+h.attempt+" by an earlier token", protocol.Release(late, true, false)),
		remove("release "+h.attempt+" by another session", protocol.Release(other, true, false)),
	}
}

func (h hold) held() protocol.Held {
	return protocol.Held{Name: "n", Session: h.session, Token: h.last, Shared: h.units > 0}
}

// converts are the steps that change a hold. They stay as it is where they do not apply.
func (w *world) converts(h hold) []step {
	steps := []step{
		{says: "downgrade " + h.attempt, self: h.session, owns: h.attempt, hands: true,
			op: protocol.Downgrade{Held: h.held()}},
		{says: "upgrade " + h.attempt, self: h.session, owns: h.attempt,
			op: protocol.Upgrade{Held: h.held(), Attempt: h.attempt}},
		{says: "extend " + h.attempt, self: h.session, owns: h.attempt,
			op: protocol.Extend{Held: h.held(), For: 20 * tick}},
		{says: "raise " + h.attempt, self: h.session, owns: h.attempt,
			op: protocol.Raise{Held: h.held(), Attempt: h.attempt, To: began + 40}},
	}
	for token := h.first; token <= h.last && h.first < h.last; token++ {
		d := protocol.Detachment{Token: token, Host: h.host, Thread: h.thread + "d"}
		s := step{says: "detach a member of " + h.attempt, self: h.session, owns: h.attempt}
		if behind := int(h.last - token); behind > 0 {
			d.Behind = request(h.attempt+"-", members(behind))
			s.rest = &d.Behind
		}
		s.op = protocol.Detach{Held: h.held(), Member: d}
		steps = append(steps, s)
	}
	if back := request("c=", owned(h.host, h.thread)); h.units == 0 && w.alive("C") && !w.sent("c=") {
		s := step{says: "reenter " + h.attempt, self: "C", gets: &back, owns: h.attempt, loses: h.attempt, seize: true}
		s.op = protocol.Reenter{Request: back}
		steps = append(steps, s)
	}
	return steps
}

// events are time, and deaths.
func (w *world) events(requests []protocol.Request) (events []step) {
	timed := slices.ContainsFunc(requests, func(r protocol.Request) bool { return r.Lease+r.MinHold > 0 })
	if timed && w.now < began+20 {
		events = append(events, step{says: "time goes by", event: func(w *world) {
			rested := w.row.Rests > w.now
			w.now += int64(10 * tick / time.Microsecond)
			w.overdue = w.overdue || rested && w.row.Rests <= w.now
		}})
	}
	for _, session := range []string{"A", "B"} {
		switch {
		case w.alive(session):
			events = append(events, step{says: session + " is over its time", event: func(w *world) {
				w.over,
					w.overdue = w.over+session, true
			}})
		case strings.Contains(w.over, session):
			events = append(events, step{says: session + " comes back", event: func(w *world) {
				w.over,
					w.overdue = strings.ReplaceAll(w.over, session, ""), true
			}})
		}
	}
	return events
}
