package mysql

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

// Describe reads queues of up to so many places with the rest of their names, and each longer queue
// in a statement of its own, a moment later.
func (e *engine) Describe(ctx context.Context, names []string, waiters int) (details []driver.Detail, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		for some := range chunks(names) {
			rows, err := q.Describe(ctx, mysqldb.DescribeParams{Names: some, Most: count(waiters)})
			if err != nil {
				return err
			}
			described, long := describe(rows, waiters)
			for i, row := range long {
				if err := firstPlaces(ctx, q, &described[i], row, waiters); err != nil {
					return err
				}
			}
			details = append(details, described...)
		}
		return nil
	})
	slices.SortFunc(details, func(a, b driver.Detail) int { return cmp.Compare(a.Name, b.Name) })
	return details, mysqlserver.Interpret(err)
}

// describe puts together what Describe returns, in whatever order. long are the rows of the names
// whose queues are longer than so many waiters, by their place among the details.
func describe(rows []mysqldb.DescribeRow, waiters int) (details []driver.Detail, long map[int]mysqldb.DescribeRow) {
	slices.SortStableFunc(rows, func(a, b mysqldb.DescribeRow) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Place, b.Place))
	})
	long = map[int]mysqldb.DescribeRow{}
	index, contended := map[string]int{}, map[string]bool{}
	var now int64 // in the rows of names, which come first
	for _, row := range rows {
		i, there := index[row.Name]
		switch {
		case row.Part == theName:
			now = row.SessionExpiresAt
			d := driver.Detail{Name: row.Name, Token: row.Place, Rest: rest(row.Since, now)}
			if contended[row.Name] = row.Waiters > 0; row.Waiters > 0 || row.SharedUnits > 0 {
				d.Capacity = int(row.Units)
			}
			if d.Queued = int(row.Waiters); d.Queued > waiters {
				long[len(details)] = row
			}
			index[row.Name], details = len(details), append(details, d)
		case !there:
		case row.Part == aHolder:
			p := party(row, now)
			p.Grant = driver.Grant{First: row.FirstToken, Token: row.Place, Lease: p.Grant.Lease, Contended: contended[row.Name]}
			details[i].Holders = append(details[i].Holders, p)
		default:
			details[i].Waiters = append(details[i].Waiters, party(row, now))
		}
	}
	return details, long
}

func party(row mysqldb.DescribeRow, now int64) driver.Party {
	h := driver.Holder{Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Units: int(row.Units)}
	return driver.Party{
		Holder: times(h, row.Since, row.ExpiresAt, row.SessionExpiresAt, now),
		App:    row.App, PID: int(row.Pid), Metadata: row.Metadata, Asked: row.Asked,
	}
}

// firstPlaces adds the first waiters of a long queue.
func firstPlaces(ctx context.Context, q *mysqldb.Queries, d *driver.Detail, name mysqldb.DescribeRow, waiters int) error {
	if waiters == 0 {
		return nil
	}
	places, err := q.FirstPlaces(ctx, mysqldb.FirstPlacesParams{Name: d.Name, Limit: count(waiters)})
	for _, p := range places {
		d.Waiters = append(d.Waiters, party(mysqldb.DescribeRow{
			SessionID: p.SessionID, Host: p.Host, Thread: p.Thread, Attempt: p.Attempt, Units: int64(p.Units), Since: p.EnqueuedAt,
			Metadata: p.Metadata, SessionExpiresAt: p.SessionExpiresAt, App: p.App, Pid: p.Pid,
		}, name.SessionExpiresAt))
	}
	return err
}

func (e *engine) Names(ctx context.Context, f driver.Filter, limit int) (names []string, err error) {
	last, bounded := above(f.Prefix)
	err = e.read(ctx, func(q *mysqldb.Queries) (err error) {
		if f.ContendedAlone() {
			names, err = q.Contended(ctx, mysqldb.ContendedParams{
				After: f.After, First: f.Prefix, Bounded: number01(bounded), Last: last, Limit: count(limit),
			})
			return err
		}
		if f.Host != "" || f.Older > 0 {
			names, err = q.NamesHeld(ctx, mysqldb.NamesHeldParams{
				After: f.After, First: f.Prefix, Bounded: number01(bounded), Last: last, Host: f.Host, Older: f.Older.Microseconds(),
				Contended: number01(f.Contended), Limit: count(limit),
			})
			return err
		}
		names, err = q.Names(ctx, mysqldb.NamesParams{
			After: f.After, First: f.Prefix, Bounded: number01(bounded), Last: last, Idle: number01(f.Idle), Limit: count(limit),
		})
		return err
	})
	return names, mysqlserver.Interpret(err)
}

func (e *engine) Why(ctx context.Context, name string, limit int) (names []string, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) (err error) {
		names, err = q.Why(ctx, mysqldb.WhyParams{Name: name, Limit: count(limit)})
		return err
	})
	return names, mysqlserver.Interpret(err)
}

// above is the first name, in the order of bytes, that comes after all that begin with a prefix.
// None where every name that comes after it begins with it.
func above(prefix string) (name string, there bool) {
	bytes := []byte(prefix)
	for i := len(bytes) - 1; i >= 0; i-- {
		if bytes[i] < 0xff {
			bytes[i]++
			return string(bytes[:i+1]), true
		}
	}
	return "", false
}

func number01(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (e *engine) Sessions(ctx context.Context, f driver.SessionFilter, after string, limit int) (sessions []driver.SessionDetail, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		rows, err := q.Sessions(ctx, mysqldb.SessionsParams{After: after, Dead: number01(f.Dead), Host: f.Host, App: f.App, Limit: count(limit)})
		for _, row := range rows {
			sessions = append(sessions, driver.SessionDetail{
				ID: row.ID, Host: row.Host, App: row.App, PID: int(row.Pid), Started: time.UnixMicro(row.StartedAt),
				Dead: row.ExpiresAt == 0, Left: microseconds(row.ExpiresAt - row.NowUs), Held: int(row.Held), Waiting: int(row.Waiting),
			})
		}
		return err
	})
	return sessions, mysqlserver.Interpret(err)
}

// Watch is a transaction for its level of isolation: at the application's, the session's row could
// be locked.
func (e *engine) Watch(ctx context.Context, session, name, watch string) error {
	return e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		return nil, q.Watch(ctx, mysqldb.WatchParams{Name: name, Watch: watch, Session: session})
	})
}

func (e *engine) Unwatch(ctx context.Context, name, watch string) error {
	return mysqlserver.Interpret(e.queries().Unwatch(ctx, mysqldb.UnwatchParams{Name: name, Watch: watch}))
}

func (e *engine) Stir(ctx context.Context, name string) error {
	return e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) { return q.Watchers(ctx, name) })
}
