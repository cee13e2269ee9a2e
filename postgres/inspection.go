package postgres

import (
	"context"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/pgserver"
)

func (e *engine) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	return e.list(ctx, names(f, limit))
}

func names(f driver.Filter, limit int) statement {
	if f.ContendedAlone() {
		return query(postgresdb.Contended, postgresdb.ContendedParams{
			Lowest: max(f.After, f.Prefix), After: f.After, Prefix: f.Prefix, Below: behind(f.Prefix),
			Most: int32(limit),
		})
	}
	return query(postgresdb.Names, postgresdb.NamesParams{
		Lowest: max(f.After, f.Prefix), After: f.After, Prefix: f.Prefix, Below: behind(f.Prefix), Idle: f.Idle,
		Host: f.Host, Older: f.Older.Microseconds(), Contended: f.Contended, Most: int32(limit),
	})
}

// behind returns the first name after all names with the prefix. If the prefix does not end in
// ASCII, no such name exists in every encoding of a database, and behind returns "".
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

func (e *engine) Sessions(
	ctx context.Context, f driver.SessionFilter, after string, limit int,
) ([]driver.SessionDetail, error) {
	var row inspection.Session
	var sessions []driver.SessionDetail
	err := e.db.exec(ctx, query(postgresdb.Sessions, postgresdb.SessionsParams{
		After: after, Dead: f.Dead, Host: f.Host, App: f.App, Most: int32(limit),
	}).into(&row, func() { sessions = append(sessions, row.Detail()) }))
	return sessions, pgserver.Interpret(err)
}

func (e *engine) Watch(ctx context.Context, session, name, watch string) error {
	return pgserver.Interpret(e.db.exec(ctx, query(postgresdb.Watch, postgresdb.WatchParams{Name: name, Watch: watch,
		Session: session})))
}

func (e *engine) Unwatch(ctx context.Context, name, watch string) error {
	return pgserver.Interpret(e.db.exec(ctx, query(postgresdb.Unwatch, postgresdb.UnwatchParams{Name: name,
		Watch: watch})))
}
