package sqlite

import (
	"context"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
)

func (e *engine) Names(ctx context.Context, f driver.Filter, limit int) ([]string, error) {
	lowest := f.Prefix
	if f.After >= lowest {
		lowest = f.After + "\x00" // no name lies in between
	}
	var names []string
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		if f.ContendedAlone() {
			names, err = q.Contended(ctx, sqlitedb.ContendedParams{Lowest: lowest, Above: inspection.Above(f.Prefix),
				Most: int64(limit)})
			return err
		}
		names, err = q.Names(ctx, sqlitedb.NamesParams{
			Lowest: lowest, Above: inspection.Above(f.Prefix), Host: f.Host, Older: f.Older.Microseconds(),
			Idle:      f.Idle,
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

func (e *engine) Sessions(
	ctx context.Context, f driver.SessionFilter, after string, limit int,
) ([]driver.SessionDetail, error) {
	var sessions []driver.SessionDetail
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.Sessions(ctx, sqlitedb.SessionsParams{After: after, Dead: f.Dead, Host: f.Host, App: f.App,
			Most: int64(limit)})
		sessions = nil
		for _, row := range rows {
			sessions = append(sessions, inspection.Session(row).Detail())
		}
		return err
	})
	return sessions, err
}

func (e *engine) Watch(ctx context.Context, session, name, watch string) error {
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		_, err := q.Watch(ctx, sqlitedb.WatchParams{Name: name, Watch: watch, Session: session})
		return err
	})
	wake(session) // also after an error: the commit may have been made
	return err
}

func (e *engine) Unwatch(ctx context.Context, name, watch string) error {
	return e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		_, err := q.Unwatch(ctx, sqlitedb.UnwatchParams{Name: name, Watch: watch})
		return err
	})
}
