package postgres

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func (e *engine) Describe(ctx context.Context, names []string, waiters int) ([]driver.Detail, error) {
	var row postgresdb.DescribeRow
	var details []driver.Detail
	err := e.db.exec(ctx, query(postgresdb.Describe, postgresdb.DescribeParams{Most: int32(waiters), Names: list(names)}).into(&row, func() {
		if len(details) == 0 || details[len(details)-1].Name != row.Name {
			details = append(details, driver.Detail{
				Name: row.Name, Token: row.Highest, Capacity: int(row.Capacity), Queued: int(row.Waiters),
				Rest: max(microseconds(row.RestsUntil-row.Now), 0),
			})
		}
		d := &details[len(details)-1]
		switch {
		case row.Session == "":
		case row.Waits == 0:
			d.Holders = append(d.Holders, party(row))
		default:
			d.Waiters = append(d.Waiters, party(row))
		}
	}))
	return details, pgserver.Interpret(err)
}

func party(row postgresdb.DescribeRow) driver.Party {
	p := driver.Party{
		Holder: driver.Holder{
			Session: row.Session, Host: row.Host, Thread: row.Thread, Attempt: row.Attempt, Units: int(row.Units),
			Grant: driver.Grant{First: row.First, Token: row.Token, Contended: row.Token > 0 && row.Waiters > 0},
			Since: time.UnixMicro(row.Since), Left: microseconds(row.SessionExpiresAt - row.Now),
		},
		App: row.App, PID: int(row.Pid), Metadata: row.Metadata, Asked: row.Asked,
	}
	if row.ExpiresAt > 0 {
		p.Holder = p.Holder.WithFixedLease(microseconds(row.ExpiresAt - row.Now))
	}
	return p
}

func (e *engine) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	return e.list(ctx, names(f, limit))
}

func names(f driver.Filter, limit int) statement {
	if f.ContendedAlone() {
		return query(postgresdb.Contended, postgresdb.ContendedParams{
			Lowest: max(f.After, f.Prefix), After: f.After, Prefix: f.Prefix, Below: behind(f.Prefix), Most: int32(limit),
		})
	}
	return query(postgresdb.Names, postgresdb.NamesParams{
		Lowest: max(f.After, f.Prefix), After: f.After, Prefix: f.Prefix, Below: behind(f.Prefix), Idle: f.Idle,
		Host: f.Host, Older: f.Older.Microseconds(), Contended: f.Contended, Most: int32(limit),
	})
}

// behind is the first name behind all with the prefix. Where the prefix does not end in ASCII there
// is none that every encoding of a database has: "".
func behind(prefix string) string {
	last := len(prefix) - 1
	if last < 0 || prefix[last] >= 0x7f {
		return ""
	}
	return prefix[:last] + string(rune(prefix[last]+1))
}

func (e *engine) Why(ctx context.Context, name string, limit int) ([]string, error) {
	return e.list(ctx, query(postgresdb.Why, postgresdb.WhyParams{Most: int32(limit), Name: name}))
}

func (e *engine) Sessions(ctx context.Context, f driver.SessionFilter, after string, limit int) ([]driver.SessionDetail, error) {
	var row postgresdb.SessionsRow
	var sessions []driver.SessionDetail
	err := e.db.exec(ctx, query(postgresdb.Sessions, postgresdb.SessionsParams{
		After: after, Dead: f.Dead, Host: f.Host, App: f.App, Most: int32(limit),
	}).into(&row, func() {
		sessions = append(sessions, driver.SessionDetail{
			ID: row.ID, Host: row.Host, App: row.App, PID: int(row.Pid), Started: time.UnixMicro(row.StartedAt),
			Dead: row.ExpiresAt == 0, Left: microseconds(row.ExpiresAt - row.Now), Held: int(row.Held), Waiting: int(row.Waiting),
		})
	}))
	return sessions, pgserver.Interpret(err)
}

func (e *engine) Watch(ctx context.Context, session, name, watch string) error {
	return pgserver.Interpret(e.db.exec(ctx, query(postgresdb.Watch, postgresdb.WatchParams{Name: name, Watch: watch, Session: session})))
}

func (e *engine) Unwatch(ctx context.Context, name, watch string) error {
	return pgserver.Interpret(e.db.exec(ctx, query(postgresdb.Unwatch, postgresdb.UnwatchParams{Name: name, Watch: watch})))
}

func (e *engine) Stir(ctx context.Context, name string) error {
	return pgserver.Interpret(e.db.exec(ctx, query(postgresdb.Stir, name)))
}
