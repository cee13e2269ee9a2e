package postgres

import (
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/protocol"
)

// write returns the statements for the changes of a transition, without its notifications. addEvent
// is AddEvent or AddEventAhead.
func write(n *protocol.Name, addEvent string) (statements []statement) {
	name := n.Row.Name
	if n.Changed() {
		statements = append(statements, query(postgresdb.WriteName, postgresdb.WriteNameParams{
			Name: name, Session: n.Session, Host: n.Host, Thread: n.Thread, Attempt: n.Attempt,
			FirstToken: n.First, LastToken: n.Last, Token: n.Token, AcquiredAt: n.Since, ExpiresAt: n.Ends,
			RestsUntil: n.Rests,
			Metadata:   n.Metadata, Asked: n.Asked, SharedUnits: int32(n.Units), Capacity: int32(n.Capacity),
			Mixed:   n.Mixed,
			Waiters: int32(n.Waiters), FirstTicket: n.Head, NextTicket: n.Next,
		}))
	}
	if len(n.GonePlaces) > 0 {
		tickets := make([]int64, len(n.GonePlaces))
		for i, p := range n.GonePlaces {
			tickets[i] = p.Ticket
		}
		statements = append(statements, query(postgresdb.DropPlaces, postgresdb.DropPlacesParams{Name: name,
			Tickets: list(tickets)}))
	}
	for _, p := range n.SetPlaces {
		statements = append(statements, query(postgresdb.SetMembers, postgresdb.SetMembersParams{
			Members: int32(p.Members), Name: name, Ticket: p.Ticket,
		}))
	}
	if len(n.PutPlaces) > 0 {
		statements = append(statements, query(postgresdb.PutPlaces, postgresdb.PutPlacesParams{Name: name,
			Places: list(placesOf(n.PutPlaces))}))
	}
	if len(n.GoneShares) > 0 {
		tokens := make([]int64, len(n.GoneShares))
		for i, s := range n.GoneShares {
			tokens[i] = s.Token
		}
		statements = append(statements, query(postgresdb.DropShares, postgresdb.DropSharesParams{Name: name,
			Tokens: list(tokens)}))
	}
	if put := slices.Concat(n.PutShares, n.SetShares); len(put) > 0 {
		statements = append(statements, query(postgresdb.PutShares, postgresdb.PutSharesParams{Name: name,
			Shares: list(put)}))
	}
	if len(n.Events) > 0 {
		statements = append(statements, query(addEvent, list(n.Events)))
	}
	if n.WakesWatchers {
		statements = append(statements, query(postgresdb.NotifyWatchers, name))
	}
	return statements
}

// place is a protocol.Place in the form that PutPlaces reads.
type place struct {
	Ticket, Since, Lease, MinHold            int64
	Session, Host, Thread, Attempt, Metadata string
	Members, Units, Of                       int
}

func placesOf(places []protocol.Place) []place {
	put := make([]place, len(places))
	for i, p := range places {
		put[i] = place{
			p.Ticket, p.Since, p.Lease.Microseconds(), p.MinHold.Microseconds(), p.Session, p.Host, p.Thread, p.Attempt,
			p.Metadata,
			max(p.Members, 1), p.Units, p.Of,
		}
	}
	return put
}

// reversible reports whether a crash may undo the changes of a transition, given that the database
// loses its latest commits and no earlier ones: then the commit need not reach the disk. An undone
// release leaves a lock that no handle claims, and its client releases it again. A place is queued
// again by its owner. Facts that a holder relies on must survive: the hold, its tokens, the end of
// its lease, recorded events.
func reversible(before protocol.Row, n *protocol.Name) bool {
	return n.Token == before.Token && len(n.PutShares)+len(n.SetShares) == 0 && len(n.Events) == 0 &&
		(n.Session == "" || n.Session == before.Session && n.First == before.First && n.Last == before.Last &&
			n.Ends == before.Ends)
}

// notification is a hint in the form that Tell sends.
type notification struct{ Session, Payload string }

// tell sends the notifications of a transition with the commit.
func tell(n *protocol.Name, lazily bool) statement {
	hints := make([]notification, len(n.Notices))
	for i, t := range n.Notices {
		hints[i] = notification{t.Session, payload(t.Hint)}
	}
	return query(postgresdb.Tell, postgresdb.TellParams{Lazily: lazily, Hints: list(hints)})
}

// payload writes the text that hint reads.
func payload(h protocol.Hint) string {
	g, waiters := h.Grant, 0
	if g.Contended {
		waiters = 1
	}
	switch {
	case g.Token == 0:
		return h.Attempt
	case g.First == g.Token:
		return fmt.Sprint(h.Attempt, " ", g.Token, " ", waiters)
	}
	return fmt.Sprint(h.Attempt, " ", g.First, " ", g.Token, " ", waiters)
}
