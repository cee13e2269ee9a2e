package mysql

import (
	"cmp"
	"context"
	"slices"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

func (e *engine) Describe(ctx context.Context, names []string) (details []driver.Detail, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		for some := range chunks(names) {
			rows, err := q.Describe(ctx, mysqldb.DescribeParams{Names: some})
			if err != nil {
				return err
			}
			details = append(details, describe(rows)...)
		}
		return nil
	})
	slices.SortFunc(details, func(a, b driver.Detail) int { return cmp.Compare(a.Name, b.Name) })
	return details, mysqlserver.Interpret(err)
}

// describe puts together what Describe returns, in whatever order.
func describe(rows []mysqldb.DescribeRow) []driver.Detail {
	slices.SortStableFunc(rows, func(a, b mysqldb.DescribeRow) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Place, b.Place))
	})
	var details []driver.Detail
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
			index[row.Name], details = len(details), append(details, d)
		case !there:
		default:
			p := driver.Party{
				Holder: driver.Holder{Session: row.SessionID, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Units: int(row.Units)},
				Holds:  int(row.Holds), App: row.App, PID: int(row.Pid), Metadata: row.Metadata, Asked: row.Asked,
			}
			if row.Part == aHolder {
				p.Grant = driver.Grant{Token: row.Place, Contended: contended[row.Name]}
			}
			p.Holder = times(p.Holder, row.Since, row.ExpiresAt, row.SessionExpiresAt, now)
			if row.Part == aHolder {
				details[i].Holders = append(details[i].Holders, p)
			} else {
				details[i].Waiters = append(details[i].Waiters, p)
			}
		}
	}
	return details
}

func (e *engine) Names(ctx context.Context, f driver.Filter, after string, limit int) (names []string, err error) {
	last, bounded := above(f.Prefix)
	err = e.read(ctx, func(q *mysqldb.Queries) (err error) {
		if f.Host != "" || f.Older > 0 {
			names, err = q.NamesHeld(ctx, mysqldb.NamesHeldParams{
				After: after, First: f.Prefix, Bounded: number01(bounded), Last: last, Host: f.Host, Older: f.Older.Microseconds(), Limit: count(limit),
			})
			return err
		}
		names, err = q.Names(ctx, mysqldb.NamesParams{
			After: after, First: f.Prefix, Bounded: number01(bounded), Last: last, Idle: number01(f.Idle), Limit: count(limit),
		})
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
