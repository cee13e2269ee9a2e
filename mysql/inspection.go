package mysql

import (
	"context"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inspection"
	"github.com/dblock-go/dblock/internal/mysqlserver"
)

func (e *engine) Names(ctx context.Context, f driver.Filter, limit int) (names []string, err error) {
	last := inspection.Above(f.Prefix)
	err = e.read(ctx, func(q *mysqldb.Queries) (err error) {
		if f.ContendedAlone() {
			names, err = q.Contended(ctx, mysqldb.ContendedParams{
				After: f.After, First: f.Prefix, Bounded: number01(last != ""), Last: last, Limit: count(limit),
			})
			return err
		}
		if f.Host != "" || f.Older > 0 {
			names, err = q.NamesHeld(ctx, mysqldb.NamesHeldParams{
				After: f.After, First: f.Prefix, Bounded: number01(last != ""), Last: last, Host: f.Host,
				Older:     f.Older.Microseconds(),
				Contended: number01(f.Contended), Limit: count(limit),
			})
			return err
		}
		names, err = q.Names(ctx, mysqldb.NamesParams{
			After: f.After, First: f.Prefix, Bounded: number01(last != ""), Last: last, Idle: number01(f.Idle),
			Limit: count(limit),
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

func number01(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (e *engine) Sessions(
	ctx context.Context, f driver.SessionFilter, after string, limit int,
) (sessions []driver.SessionDetail, err error) {
	err = e.read(ctx, func(q *mysqldb.Queries) error {
		rows, err := q.Sessions(ctx, mysqldb.SessionsParams{After: after, Dead: number01(f.Dead), Host: f.Host,
			App: f.App, Limit: count(limit)})
		for _, row := range rows {
			sessions = append(sessions, inspection.Session(row).Detail())
		}
		return err
	})
	return sessions, mysqlserver.Interpret(err)
}

// Watch runs in a transaction for its isolation level: at the application's level, the statement
// could lock the session's row.
func (e *engine) Watch(ctx context.Context, session, name, watch string) error {
	return e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		_, err := q.Watch(ctx, mysqldb.WatchParams{Name: name, Watch: watch, Session: session})
		return nil, err
	})
}

func (e *engine) Unwatch(ctx context.Context, name, watch string) error {
	return e.lone(ctx, func(q *mysqldb.Queries) error {
		_, err := q.Unwatch(ctx, mysqldb.UnwatchParams{Name: name, Watch: watch})
		return err
	})
}
