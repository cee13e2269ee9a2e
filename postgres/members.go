package postgres

import (
	"context"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/postgresdb"
)

// Settle locks the row first: which places are those of members is not in it.
func (e *engine) Settle(ctx context.Context, h driver.Held, singly bool) error {
	var settled bool
	err := e.handOver(ctx, h.Name, query(postgresdb.Settle, postgresdb.SettleParams{
		Name: h.Name, Session: h.Session, Token: h.Token, Singly: singly,
	}).found(new(postgresdb.SettleRow), &settled))
	if err == nil && !settled {
		return driver.ErrNotHeld
	}
	return err
}

// pass takes the attempt that the row shows out of its run: the row shows the next member. It does
// nothing where there is none.
func (d *handed) pass(v driver.Vacancy) statement {
	return query(postgresdb.ShowNextMember, postgresdb.ShowNextMemberParams{
		Name: v.Name, Session: v.Session, Attempt: v.Attempt,
	}).found(new(postgresdb.ShowNextMemberRow), &d.given)
}

// requeueMembers has the members of a run wait again, where the hold that is taken over is a run.
func requeueMembers(q quarry) statement {
	return query(postgresdb.RequeueMembers, postgresdb.RequeueMembersParams(q))
}
