package sqlite

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
)

func (e *engine) Describe(ctx context.Context, names []string, waiters int) ([]driver.Detail, error) {
	list, err := jsonOf(names)
	if err != nil {
		return nil, err
	}
	var details []driver.Detail
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.Describe(ctx, sqlitedb.DescribeParams{Names: list, Most: int64(waiters)})
		details = nil
		for _, row := range rows {
			describe(&details, row)
		}
		return err
	})
	return details, err
}

// describe adds a row to the name that it is about, which is the last: a name's own row comes
// first.
func describe(details *[]driver.Detail, row sqlitedb.DescribeRow) {
	if row.Kind == aName {
		d := driver.Detail{Name: row.Name, Token: row.Place, Queued: int(row.Waiters), Rest: max(0, microseconds(row.RestsUntil-row.NowUs))}
		if row.SharedUnits > 0 || row.Waiters > 0 {
			d.Capacity = int(row.Capacity)
		}
		*details = append(*details, d)
		if row.Session == "" {
			return
		}
	}
	last := len(*details) - 1
	if last < 0 || (*details)[last].Name != row.Name {
		return // what an operator left behind of a name without a row
	}
	p := driver.Party{
		Holder: holder(sqlitedb.LookSharedRow{
			Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Units: row.Units,
			Token: row.Token, FirstToken: row.FirstToken, Since: row.Since, ExpiresAt: row.ExpiresAt,
			NowUs: row.NowUs, Dead: row.Dead, SessionExpiresAt: row.SessionExpiresAt,
		}),
		App: row.App, PID: int(row.Pid), Metadata: row.Metadata, Asked: row.Asked,
	}
	d := &(*details)[last]
	if row.Kind == aPlace {
		d.Waiters = append(d.Waiters, p)
		for i := range d.Holders {
			d.Holders[i].Grant.Contended = true
		}
		return
	}
	d.Holders = append(d.Holders, p)
}

func (e *engine) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	lowest := f.Prefix
	if f.After >= lowest {
		lowest = f.After + "\x00" // there is no name in between
	}
	var names []string
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		if f.ContendedAlone() {
			names, err = q.Contended(ctx, sqlitedb.ContendedParams{Lowest: lowest, Above: above(f.Prefix), Most: int64(limit)})
			return err
		}
		names, err = q.Names(ctx, sqlitedb.NamesParams{
			Lowest: lowest, Above: above(f.Prefix), Host: f.Host, Older: f.Older.Microseconds(), Idle: f.Idle,
			Contended: f.Contended, Most: int64(limit),
		})
		return err
	})
	return names, err
}

func (e *engine) Why(ctx context.Context, name string, limit int) (names []string, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		names, err = q.Why(ctx, sqlitedb.WhyParams{Most: int64(limit), Name: name})
		return err
	})
	return names, err
}

// above is the lowest of all that come after whatever begins with the prefix; "" where nothing
// does.
func above(prefix string) string {
	limit := []byte(prefix)
	for len(limit) > 0 && limit[len(limit)-1] == 0xff {
		limit = limit[:len(limit)-1]
	}
	if len(limit) == 0 {
		return ""
	}
	limit[len(limit)-1]++
	return string(limit)
}

func (e *engine) Sessions(ctx context.Context, f driver.SessionFilter, after string, limit int) ([]driver.SessionDetail, error) {
	var sessions []driver.SessionDetail
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.Sessions(ctx, sqlitedb.SessionsParams{After: after, Dead: f.Dead, Host: f.Host, App: f.App, Most: int64(limit)})
		sessions = nil
		for _, row := range rows {
			sessions = append(sessions, driver.SessionDetail{
				ID: row.ID, Host: row.Host, App: row.App, PID: int(row.Pid), Started: time.UnixMicro(row.StartedAt),
				Dead: row.ExpiresAt == 0, Left: microseconds(row.ExpiresAt - row.NowUs), Held: int(row.Held), Waiting: int(row.Waiting),
			})
		}
		return err
	})
	return sessions, err
}

func (e *engine) Watch(ctx context.Context, session, name, watch string) error {
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		return q.Watch(ctx, sqlitedb.WatchParams{Name: name, Watch: watch, Session: session})
	})
	wake(session) // after an error too: the commit may have been made
	return err
}

func (e *engine) Unwatch(ctx context.Context, name, watch string) error {
	return e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		return q.Unwatch(ctx, sqlitedb.UnwatchParams{Name: name, Watch: watch})
	})
}

// Stir writes nothing where nobody watches.
func (e *engine) Stir(ctx context.Context, name string) error {
	var watched bool
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		watchers, err := q.Watchers(ctx, name)
		watched = len(watchers) > 0
		return err
	})
	if err != nil || !watched {
		return err
	}
	_, err = e.write(ctx, writing{}, func(ctx context.Context, w *writer) (c changed, err error) {
		err = c.stir(ctx, w.Queries, name)
		return c, err
	})
	return err
}
