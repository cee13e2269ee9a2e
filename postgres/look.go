package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func (e *engine) Look(ctx context.Context, session string, names []string) ([]driver.State, error) {
	states := make([]driver.State, 0, len(names))
	err := e.db.exec(ctx, look(session, names, &states))
	for _, s := range states {
		slices.SortFunc(s.Granted, func(a, b driver.OwnGrant) int { return cmp.Compare(a.Grant.Token, b.Grant.Token) })
	}
	return states, pgserver.Interpret(err)
}

// look puts together what comes in one row for each name and each attempt of the session's.
func look(session string, names []string, states *[]driver.State) statement {
	var row postgresdb.LookRow
	index := make(map[string]int, len(names)) // where in states a name stands
	return query(postgresdb.Look, postgresdb.LookParams{Session: session, Names: list(names)}).into(&row, func() {
		i, seen := index[row.Name]
		if !seen {
			i, index[row.Name] = len(*states), len(*states)
			*states = append(*states, state(row, session))
		}
		s := &(*states)[i]
		switch {
		case row.OwnAttempt == "":
		case row.OwnToken == 0:
			s.Queued = append(s.Queued, row.OwnAttempt)
		default:
			s.Granted = append(s.Granted, driver.OwnGrant{Attempt: row.OwnAttempt, Grant: driver.Grant{
				First: row.OwnToken, Token: row.OwnToken, Contended: row.Waiters > 0, Lease: leftOf(row.OwnExpiresAt, row.Now),
			}})
		}
	})
}

func state(row postgresdb.LookRow, session string) driver.State {
	s := driver.State{
		Name: row.Name, Sharing: int(row.Sharing), Used: int(row.SharedUnits), Capacity: int(row.Capacity), Waiters: int(row.Waiters),
		Rest: max(microseconds(row.RestsUntil-row.Now), 0), Ready: row.Ready,
	}
	if row.Session != "" {
		if row.Units > 0 {
			row.FirstToken = row.Token
		}
		s.Holder = driver.Holder{
			Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Units: int(row.Units),
			Grant: driver.Grant{First: row.FirstToken, Token: row.Token, Contended: row.Waiters > 0},
			Since: time.UnixMicro(row.AcquiredAt), Left: microseconds(row.SessionExpiresAt - row.Now),
		}
		if row.ExpiresAt > 0 {
			s.Holder = s.Holder.WithFixedLease(microseconds(row.ExpiresAt - row.Now))
		}
	}
	if row.Session == session && row.Units == 0 && session != "" {
		s.Granted = append(s.Granted, driver.OwnGrant{Attempt: row.Attempt, Grant: s.Holder.Grant})
	}
	if row.Sharing > 0 && row.HeadAttempt != "" {
		s.Head = driver.Holder{
			Session: row.HeadSession, Host: row.HeadHost, Thread: row.HeadThread, Attempt: row.HeadAttempt, Units: int(row.HeadUnits),
			Since: time.UnixMicro(row.HeadSince), Left: microseconds(row.HeadEndsAt - row.Now),
		}
	}
	return s
}

// leftOf is what is left of a fixed lease, as a Grant tells it: 0 where there is none, and -1 where
// it is over.
func leftOf(expiresAt, now int64) time.Duration {
	switch {
	case expiresAt == 0:
		return 0
	case expiresAt <= now:
		return -1
	}
	return microseconds(expiresAt - now)
}
