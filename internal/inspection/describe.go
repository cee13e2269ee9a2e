package inspection

import (
	"cmp"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
)

// Participant is what Describe reads, in the order of its columns: a row of each name, of each
// share, and of the first places in its queue. What is of a name stands in its own row alone.
type Participant struct {
	Name             string
	Part             int64
	Place            int64  // the order within a part; of a name the highest token
	SessionID        string // of a name "": nobody has the whole of it
	Host             string
	Thread           string
	Attempt          string
	Token            int64 // of a place 0
	FirstToken       int64
	Units            int64 // of a name those that are in use
	Since            int64
	ExpiresAt        int64 // 0: no fixed lease
	SessionExpiresAt int64 // 0: the session is dead
	Capacity         int64 // of a name
	Waiters          int64 // of a name
	RestsUntil       int64 // of a name
	NowUs            int64
	Metadata         string
	Asked            string
	App              string
	Pid              int64
}

// Details are names as people see them, each with up to so many waiters. The rows come in any
// order.
func Details(rows []Participant, waiters int) (details []driver.Detail) {
	slices.SortFunc(rows, func(a, b Participant) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Place, b.Place))
	})
	var d *driver.Detail
	for _, p := range rows {
		if p.Part == Name {
			details = append(details, driver.Detail{
				Name: p.Name, Token: p.Place, Capacity: capacity(p.Capacity, p.Units, p.Waiters), Queued: int(p.Waiters), Rest: rest(p.RestsUntil, p.NowUs),
			})
			d, p.Units = &details[len(details)-1], 0
		}
		switch {
		case d == nil || d.Name != p.Name: // it is left behind of a name without a row
		case p.SessionID == "":
		case p.Part != Place:
			p := p.participant()
			p.Grant.Contended = d.Queued > 0
			d.Holders = append(d.Holders, p)
		case len(d.Waiters) < waiters:
			d.Waiters = append(d.Waiters, p.participant())
		}
	}
	return details
}

// Row is the same as Look reads it.
func (p Participant) Row() Row {
	return Row{
		Name: p.Name, Part: p.Part, SessionID: p.SessionID, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt, Token: p.Token,
		FirstToken: p.FirstToken, Units: p.Units, Since: p.Since, ExpiresAt: p.ExpiresAt, SessionExpiresAt: p.SessionExpiresAt,
		Capacity: p.Capacity, Waiters: p.Waiters, RestsUntil: p.RestsUntil, NowUs: p.NowUs,
	}
}

func (p Participant) participant() driver.Participant {
	return driver.Participant{Holder: p.Row().Holder(), App: p.App, PID: int(p.Pid), Metadata: p.Metadata, Asked: p.Asked}
}
