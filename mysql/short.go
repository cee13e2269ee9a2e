package mysql

import (
	"context"
	"database/sql"
	"math"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// short runs an op in fewer round trips than general, or does nothing: done is false. The comment
// of each case counts the round trips, and those of general.
//
// joinQueue and handToHead are transactions that wait for the name's row in the server's order,
// while general retries at random. They need a connection on which such a wait is bounded: one of
// an attended side pool.
func (e *engine) short(ctx context.Context, op protocol.Op) (result protocol.Result, done bool, err error) {
	if r, removes := op.(protocol.Removal); removes && r.Cause == protocol.ByTime && !r.LeaseOver {
		// A session that is to be dead is expired first, in a transaction of its own: in the order
		// of locks its row comes after the name's, and it is dead also if a guard refuses the
		// takeover.
		dead, err := e.Expire(ctx, r.Session)
		return result, !dead, err
	}
	if err := e.meet(ctx, e.db); err != nil || e.dialect().plain {
		return result, false, mysqlserver.Interpret(err)
	}
	switch op := op.(type) {
	case protocol.Take: // 1, general 4; for a name without a row 5, general 8
		if op.Units > 0 || op.Members > 1 { // such a request needs more than the name's row
			return result, false, nil
		}
		result, err = e.take(ctx, op.Request)
		return result, true, mysqlserver.Interpret(err)
	case protocol.Join: // 4, general 5
		return e.joinQueue(ctx, op.Request)
	case protocol.Removal:
		whole := op.Cause == protocol.ByHolder && !op.Shared && !op.Guarded
		switch {
		case whole && !op.Contended: // 1, general 4
			n, err := e.queries().ReleaseIdle(ctx, mysqldb.ReleaseIdleParams{
				Name: op.Name, Session: op.Session, Token: op.Token,
			})
			return protocol.Result{Outcome: protocol.Done}, n > 0, mysqlserver.Interpret(err)
		case whole: // 5, general 6
			return e.handToHead(ctx, op)
		}
	}
	return result, false, nil
}

// take takes a whole name that is free. After a failure it looks for the reason: the row is
// missing, locked at the moment, or not free.
func (e *engine) take(ctx context.Context, r protocol.Request) (protocol.Result, error) {
	if result, err := e.takeFree(ctx, r); result.Done() || err != nil {
		return result, err
	}
	row, there, err := e.lockRow(ctx, e.queries(), r.Name, r.Patient)
	if err == nil && !there {
		_, err = e.queries().MakeRow(ctx, r.Name)
	}
	if err != nil || there && !free(rowOf(r.Name, row)) {
		return protocol.Result{}, err
	}
	return e.takeFree(ctx, r)
}

// free reports whether a whole name is available, apart from a rest.
func free(row protocol.Row) bool { return row.Waiters == 0 && row.Fits(0, 0) }

// takeFree takes a whole name that is free, unless the name rests or another transaction has locked
// its row. MySQL skips a locked row. MariaDB would write a file for that statement, so there the
// statement does not wait.
func (e *engine) takeFree(ctx context.Context, r protocol.Request) (protocol.Result, error) {
	var token int64
	var err error
	if e.dialect().takesRow {
		token, err = mysqldb.New(nowait{e.prepared}).TakeRow(ctx, mysqldb.TakeRowParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: lease(r.Lease), MinHold: lease(r.MinHold), Metadata: plainJSON(r.Metadata),
		})
		if mysqlserver.Number(err) == mysqlserver.LockWaitTimeout {
			return protocol.Result{}, nil
		}
	} else {
		token, err = e.queries().TakeLock(ctx, mysqldb.TakeLockParams{
			Name: r.Name, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: lease(r.Lease), MinHold: lease(r.MinHold), Metadata: plainJSON(r.Metadata),
		})
	}
	if err != nil || token == 0 {
		return protocol.Result{}, err
	}
	grant := protocol.Grant{First: token, Token: token, Lease: r.Lease}
	return protocol.Result{Outcome: protocol.Done, Grant: grant}, nil
}

// nowait adds to statements that they wait for no row, on MariaDB. To MySQL the words are a
// comment.
type nowait struct{ mysqldb.DBTX }

func (n nowait) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return n.DBTX.ExecContext(ctx, "/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ "+text, args...)
}

// joinQueue adds a place to the queue of a name that is held as a whole.
func (e *engine) joinQueue(ctx context.Context, r protocol.Request) (result protocol.Result, joined bool, err error) {
	if r.Units > 0 || !r.Patient || !e.side.Attended() {
		return result, false, nil
	}
	members := max(r.Members, 1)
	err = e.transactAt(ctx, r.Name, func(q *mysqldb.Queries) ([]string, error) {
		joined = false
		ticket, err := q.TakeTicket(ctx, mysqldb.TakeTicketParams{Name: r.Name, Members: int64(members)})
		if _, err := granted(err); err != nil || ticket == 0 {
			return nil, err
		}
		joined = true
		return nil, q.AddPlace(ctx, mysqldb.AddPlaceParams{
			Name: r.Name, Ticket: ticket, Session: r.Session, Host: r.Host, Thread: r.Thread, Attempt: r.Attempt,
			Lease: r.Lease.Microseconds(), Metadata: plainJSON(r.Metadata), MinHold: r.MinHold.Microseconds(),
			Members: int32(members),
		})
	})
	return protocol.Result{Outcome: protocol.Queued}, joined, err
}

// handToHead releases a whole name, and hands it to the first waiter if that waiter is alive and
// wants the whole name for as long as its session lives. A session that dies between the statements
// still gets the name, as one that dies a moment later would.
func (e *engine) handToHead(ctx context.Context, r protocol.Removal) (result protocol.Result, handed bool, err error) {
	if !e.side.Attended() {
		return result, false, nil
	}
	var next []protocol.Handoff
	err = e.transactAt(ctx, r.Name, func(q *mysqldb.Queries) ([]string, error) {
		next = nil
		places, err := nextWaiters(ctx, q, mysqldb.NextWaitersParams{Name: r.Name, After: math.MinInt64, Limit: 2})
		if err != nil || len(places) == 0 {
			return nil, err
		}
		w := places[0]
		if w.Alive == 0 || w.Units > 0 || w.Lease > 0 || w.MinHold > 0 {
			return nil, nil
		}
		token, err := q.HandToHead(ctx, mysqldb.HandToHeadParams{
			Name: r.Name, Holder: r.Session, Token: r.Token, Ticket: w.Ticket, Members: int64(w.Members),
			Unseen: unseen(r.Self, w.SessionID), Session: w.SessionID, Host: w.Host, Thread: w.Thread,
			Attempt: w.Attempt, Metadata: w.Metadata,
		})
		if _, err := granted(err); err != nil || token == 0 {
			return nil, err
		}
		grant := protocol.Grant{First: token - int64(w.Members) + 1, Token: token, Contended: len(places) > 1}
		next = []protocol.Handoff{{Session: w.SessionID, Attempt: w.Attempt, Grant: grant}}
		return others(r.Self, w.SessionID), q.DropWaiter(ctx, mysqldb.DropWaiterParams{Name: r.Name, Ticket: w.Ticket})
	})
	return protocol.Result{Outcome: protocol.Done, Next: next}, len(next) > 0, err
}
