package sqlite

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/queue"
)

// followers are the places right behind a waiter that are granted the whole name with it.
func (t *transition) followers(ctx context.Context, name string, w sqlitedb.FirstWaiterRow) ([]sqlitedb.FollowersRow, error) {
	if !w.Leads {
		return nil, nil
	}
	rows, err := t.q.Followers(ctx, sqlitedb.FollowersParams{Name: name, Ticket: w.Ticket})
	if err != nil {
		return nil, err
	}
	places := make([]queue.Place, len(rows))
	for i, row := range rows {
		places[i] = queue.Place{Session: row.SessionID, Units: int(row.Units), Passable: row.Passable}
	}
	return rows[:queue.Members(queue.Place{Session: w.SessionID, Passable: true}, places)], nil
}

// grantRun marks the followers of a waiter that has been granted the name with the first token, and
// adds the grants of all of them.
func (t *transition) grantRun(ctx context.Context, name string, w sqlitedb.FirstWaiterRow, first int64, members []sqlitedb.FollowersRow) error {
	run := driver.Range{First: first, Last: first + int64(len(members))}
	add := func(attempt string, token int64) {
		t.next = append(t.next, driver.Handoff{Session: w.SessionID, Attempt: attempt, Grant: driver.Grant{Token: token, Run: run}})
	}
	add(w.Attempt, first)
	for i, m := range members {
		add(m.Attempt, first+1+int64(i))
	}
	return t.q.MarkMembers(ctx, sqlitedb.MarkMembersParams{
		Name: name, FirstToken: first, Head: w.Ticket, Final: members[len(members)-1].Ticket,
	})
}

// endRun ends the run of a name that nobody has any more. Its members lose their places if they
// have been served, and wait again otherwise.
func (t *transition) endRun(ctx context.Context, name string, r room, served bool) (room, error) {
	if r.FirstToken == r.LastToken {
		return r, nil
	}
	gone, err := int64(0), error(nil)
	if served {
		gone, err = t.q.DropMembers(ctx, sqlitedb.DropMembersParams{Name: name, Final: r.LastToken})
	} else {
		err = t.q.ResetMembers(ctx, sqlitedb.ResetMembersParams{Name: name})
	}
	if err != nil {
		return room{}, err
	}
	row, err := t.q.CloseRun(ctx, sqlitedb.CloseRunParams{Name: name, Gone: gone})
	return room(row), err
}

// leaveRun takes the first of a run out of it, so that the next is the first. It reports false
// where the attempt is none such, or has none behind it.
func (t *transition) leaveRun(ctx context.Context, session, name, attempt string) (bool, error) {
	run, held, err := found(t.q.RunOf(ctx, sqlitedb.RunOfParams{Name: name, Session: session}))
	if err != nil || !held || run.Attempt != attempt || run.FirstToken == run.LastToken {
		return false, err
	}
	members, err := t.q.Members(ctx, name)
	if err != nil || len(members) == 0 {
		return false, err
	}
	return true, t.show(ctx, name, run, members[0], run.LastToken)
}

// show makes a member the first of the run, which ends with the last token. Those before it lose
// their places.
func (t *transition) show(ctx context.Context, name string, run sqlitedb.RunOfRow, m sqlitedb.MembersRow, last int64) error {
	gone, err := t.q.DropMembers(ctx, sqlitedb.DropMembersParams{Name: name, Final: m.Token})
	if err != nil {
		return err
	}
	return t.q.ShowMember(ctx, sqlitedb.ShowMemberParams{
		Name: name, Host: m.Host, Thread: m.Thread, Attempt: m.Attempt, AcquiredAt: run.NowUs,
		FirstToken: m.Token, LastToken: last, Gone: gone,
	})
}

func (e *engine) Settle(ctx context.Context, h driver.Held, singly bool) error {
	_, err := e.change(ctx, writing{relaxed: true}, h.Session, func(ctx context.Context, t *transition) error {
		return t.settle(ctx, h, singly)
	})
	return err
}

func (t *transition) settle(ctx context.Context, h driver.Held, singly bool) error {
	run, held, err := found(t.q.RunOf(ctx, sqlitedb.RunOfParams{Name: h.Name, Session: h.Session}))
	switch {
	case err != nil:
		return err
	case !held || h.Token < run.FirstToken || h.Token > run.LastToken:
		return driver.ErrNotHeld
	case run.FirstToken == run.LastToken:
		return nil
	}
	member := sqlitedb.MembersRow{Token: h.Token, Host: run.Host, Thread: run.Thread, Attempt: run.Attempt}
	if h.Token > run.FirstToken {
		members, err := t.q.Members(ctx, h.Name)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(members, func(m sqlitedb.MembersRow) bool { return m.Token == h.Token })
		if at < 0 {
			return driver.ErrNotHeld
		}
		member = members[at]
	}
	t.q.keep(h.Token, run.NowUs, 0)
	if err := t.show(ctx, h.Name, run, member, h.Token); err != nil {
		return err
	}
	return t.q.ResetMembers(ctx, sqlitedb.ResetMembersParams{Name: h.Name, Singly: singly})
}
