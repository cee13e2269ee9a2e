package mysql

import (
	"context"
	"errors"
	"slices"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// grant is a grant by another session.
type grant struct {
	name   string
	shared bool
}

// news returns the grants by other sessions that wake was not called with. cut reports that a KILL
// meant for a sleep hit the statement: not every wake-up is for a grant.
func (l *listener) news(ctx context.Context) (hints []protocol.Hint, cut bool, err error) {
	rows, err := l.unseen(ctx, l.q)
	for mysqlserver.WasKilled(err) {
		cut = true
		rows, err = l.unseen(ctx, l.q)
	}
	if err != nil {
		return nil, cut, unanswered(ctx, err)
	}
	return l.learn(rows), cut, nil
}

// learn returns those of the rows that wake was not called with, and remembers all of them.
func (l *listener) learn(rows []mysqldb.UnseenRow) (hints []protocol.Hint) {
	known := make(map[string]grant, len(rows))
	for _, row := range rows {
		known[row.Attempt] = grant{row.Name, row.Shared != 0}
		if _, there := l.known[row.Attempt]; !there {
			h := protocol.Hint{Attempt: row.Attempt}
			if !row.ExpiresAt.Valid {
				h.Grant = protocol.Grant{First: row.FirstToken, Token: row.Token, Contended: row.Waiters > 0}
			}
			hints = append(hints, h)
		}
	}
	l.known = known
	return hints
}

func (l *listener) unseen(ctx context.Context, q *mysqldb.Queries) ([]mysqldb.UnseenRow, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	return q.Unseen(ctx, mysqldb.UnseenParams{Session: l.session})
}

// acknowledge marks grants as known in the tables when there are too many to keep in memory: locks
// that were handed over and are held for long. cut has the meaning that it has in news.
func (l *listener) acknowledge(ctx context.Context) (cut bool, err error) {
	if len(l.known) <= maxKnown {
		return false, nil
	}
	within, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	var done []string
	err = transactOn(within, l.conn, l.prepared, func(db mysqldb.DBTX) (err error) {
		done, err = l.mark(within, mysqldb.New(db))
		return err
	})
	if mysqlserver.WasKilled(err) || errors.Is(mysqlserver.Interpret(err), driver.ErrRetry) {
		return mysqlserver.WasKilled(err), nil // nothing was done; the next call repeats it
	}
	if err != nil {
		return false, unanswered(ctx, err)
	}
	for _, attempt := range done {
		delete(l.known, attempt)
	}
	return false, nil
}

// mark marks the known grants, and returns the attempts that it has marked.
func (l *listener) mark(ctx context.Context, q *mysqldb.Queries) (done []string, err error) {
	var names, attempts []string
	for attempt, g := range l.known {
		if g.shared {
			attempts = append(attempts, attempt)
		} else {
			names = append(names, g.name)
		}
	}
	for part := range chunks(names) {
		rows, err := q.LockUnseen(ctx, mysqldb.LockUnseenParams{Names: part, Session: l.session})
		if err != nil {
			return nil, err
		}
		var locked []string
		for _, row := range rows {
			// a later grant of the same name stays unmarked
			if l.known[row.Attempt].name == row.Name {
				locked, done = append(locked, row.Name), append(done, row.Attempt)
			}
		}
		for part := range slices.Chunk(locked, maxList) {
			marked, err := q.AcknowledgeLocks(ctx, pad(part))
			if err := did(marked, err, len(part)); err != nil {
				return nil, err
			}
		}
	}
	for part := range chunks(attempts) {
		locked, err := q.LockUnseenShares(ctx, part)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(locked, maxList) {
			marked, err := q.AcknowledgeShares(ctx, pad(part))
			if err := did(marked, err, len(part)); err != nil {
				return nil, err
			}
		}
		done = append(done, locked...)
	}
	return done, nil
}
