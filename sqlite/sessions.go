package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/dblock-go/dblock/gen/sqlitedb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

func (e *engine) Schema(ctx context.Context) (driver.Schema, error) {
	var is driver.Schema
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		row, there, err := found(q.Schema(ctx))
		is = driver.Schema{Version: int(row.Version), UsableFrom: int(row.UsableFrom), Emptied: err == nil && !there}
		return err
	})
	if err == nil && is.Version >= driver.SchemaVersion {
		err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
			is.Database, err = q.Database(ctx)
			return err
		})
	}
	if errors.Is(err, driver.ErrSchema) {
		is, err = driver.Schema{}, nil
	}
	if err == nil && is.Check() != nil {
		is.Place, err = e.db.place(ctx)
	}
	return is, err
}

// refuseTriggers returns ErrConfig if a table has a trigger, which may keep dblock's statements
// from doing what they say.
func (e *engine) refuseTriggers(ctx context.Context) error {
	return e.db.withConn(ctx, briefly, asSet, func(quiet context.Context, conn *sql.Conn) error {
		names, _, err := databases(quiet, conn)
		if err != nil {
			return err
		}
		for _, in := range names {
			var name, table string
			row := conn.QueryRowContext(quiet, "SELECT name, tbl_name FROM "+in+".sqlite_schema "+
				"WHERE type = 'trigger' AND substr(tbl_name, 1, 7) = 'dblock_' "+
				"AND substr(name, 1, 7) <> 'dblock_' LIMIT 1")
			switch _, there, err := found(name, row.Scan(&name, &table)); {
			case err != nil:
				return err
			case there:
				return driver.Triggered("trigger", name, table)
			}
		}
		return nil
	})
}

func (e *engine) OpenSession(ctx context.Context, s driver.Session) error {
	if s.First {
		if err := e.refuseTriggers(ctx); err != nil {
			return err
		}
	}
	return e.db.writeAs(ctx, writing{patience: briefly}, func(ctx context.Context, w *writer) error {
		err := w.OpenSession(ctx, sqlitedb.OpenSessionParams{ID: s.ID, Host: s.Host, Pid: int64(s.PID), App: s.App})
		if err != nil {
			return err
		}
		return w.OpenHeartbeat(ctx, sqlitedb.OpenHeartbeatParams{Session: s.ID, Ttl: s.TTL.Microseconds()})
	})
}

func (e *engine) EndSession(ctx context.Context, session string, empty bool) error {
	return e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		if _, err := q.EndSession(ctx, session); err != nil {
			return err
		}
		if _, err := q.DropHeartbeat(ctx, session); err != nil {
			return err
		}
		if _, err := q.DropWatchers(ctx, session); err != nil || !empty {
			return err
		}
		_, err := q.ForgetSession(ctx, session)
		return err
	})
}

func (e *engine) Expire(ctx context.Context, session string) (dead bool, err error) {
	err = e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		dead, err = expire(ctx, q, session)
		return err
	})
	return dead && err == nil, err
}

func (e *engine) Bury(ctx context.Context, session, by, because string) (burial driver.Burial, err error) {
	err = e.db.writeAs(ctx, writing{patience: briefly}, func(ctx context.Context, w *writer) error {
		dead, there, err := found(w.SessionDead(ctx, session))
		switch {
		case err != nil || !there:
			burial = driver.Missing
			return err
		case dead:
			burial = driver.DeadAlready
			return nil
		}
		burial = driver.Buried
		err = w.BurySession(ctx, sqlitedb.BurySessionParams{ID: session, By: by, Because: because})
		if err == nil {
			_, err = w.DropHeartbeat(ctx, session)
		}
		return err
	})
	return burial, err
}

// expire ends a session whose TTL has passed, or that has neither a row nor a heartbeat. It reports
// whether the session is dead now.
func expire(ctx context.Context, q *sqlitedb.Queries, session string) (bool, error) {
	if _, err := q.RestoreSession(ctx, session); err != nil {
		return false, err
	}
	if _, err := q.ExpireSession(ctx, session); err != nil {
		return false, err
	}
	if _, err := q.DropHeartbeat(ctx, session); err != nil {
		return false, err
	}
	return q.SessionDead(ctx, session)
}

// Upkeep reserves no connection: with a pool of one, a reserved connection would leave the
// application none.
func (e *engine) Upkeep(ctx context.Context, _ string) (driver.Upkeep, error) {
	return upkeep{e}, ctx.Err()
}

func (e *engine) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return upkeep{e}.Heartbeat(ctx, session, ttl)
}

// Attend does nothing: no connection is reserved.
func (e *engine) Attend(string, time.Duration) (leave func()) { return func() {} }

// Lending returns a context that never ends, for the same reason.
func (e *engine) Lending() context.Context { return context.Background() }

// OnSideConn uses the pool. A transaction that writes has locked the whole database, so another
// connection would not help.
func (e *engine) OnSideConn(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	return do(ctx, upkeep{e})
}

type upkeep struct{ e *engine }

func (u upkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	var alive int64
	err := u.e.db.writeAs(ctx, writing{first: true}, func(ctx context.Context, w *writer) (err error) {
		alive, err = w.Heartbeat(ctx, sqlitedb.HeartbeatParams{
			Session: session, Ttl: ttl.Microseconds(), Build: driver.SchemaVersion,
		})
		return err
	})
	if err == nil && alive > 0 {
		err = u.e.db.follow(ctx) // after the heartbeat, which must not wait for a new connection
	}
	if err != nil || alive > 0 {
		return alive > 0 && err == nil, err
	}
	tables, err := u.e.Schema(ctx)
	if err != nil {
		return false, err
	}
	return false, tables.Check()
}

func (u upkeep) Claims(ctx context.Context, session string, _ []driver.Claim) ([]driver.Claim, error) {
	return u.e.Claims(ctx, session, driver.All)
}

func (u upkeep) Close() error { return nil }

func (e *engine) Claims(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	var claims []driver.Claim
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.Claims(ctx, sqlitedb.ClaimsParams{Session: session, Most: int64(limit)})
		claims = nil
		for _, row := range rows {
			claims = append(claims, driver.Claim(row))
		}
		return err
	})
	return claims, err
}

func (e *engine) Orphans(ctx context.Context, limit int) (orphans []driver.Claim, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.Orphans(ctx, int64(limit))
		orphans = nil
		for _, row := range rows {
			orphans = append(orphans, driver.Claim(row))
		}
		return err
	})
	return orphans, err
}

func (e *engine) Expired(ctx context.Context, limit int) (ids []string, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		ids, err = q.Expired(ctx, int64(limit))
		return err
	})
	return ids, err
}

func (e *engine) Overdue(ctx context.Context, limit int) ([]driver.State, error) {
	var states []driver.State
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) error {
		rows, err := q.Overdue(ctx, int64(limit))
		states = nil
		for _, row := range rows {
			states = append(states, driver.State{Name: row.Name, Holder: protocol.Holder{
				Session: row.Session, Units: int(row.Units), Grant: protocol.Grant{Token: row.Token, Lease: -1},
			}})
		}
		return err
	})
	return states, err
}

func (e *engine) Miscounted(ctx context.Context, after, upto string, limit int) (names []string, err error) {
	err = e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		names, err = q.Miscounted(ctx, sqlitedb.MiscountedParams{After: after, Upto: upto, Most: int64(limit)})
		return err
	})
	return names, err
}

// Purge takes the write lock only for a page that has an idle row.
func (e *engine) Purge(ctx context.Context, idle time.Duration, after string, limit int) (int, string, error) {
	var page []sqlitedb.PurgePageRow
	err := e.db.read(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		page, err = q.PurgePage(ctx, sqlitedb.PurgePageParams{Idle: idle.Microseconds(), After: after,
			Most: int64(limit)})
		return err
	})
	if err != nil || len(page) == 0 {
		return 0, "", err
	}
	final, found := page[len(page)-1].Name, false
	for _, row := range page {
		found = found || row.Idle
	}
	var deleted int64
	if found {
		err = e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
			deleted, err = q.PurgeIdle(ctx, sqlitedb.PurgeIdleParams{After: after, Final: final,
				Idle: idle.Microseconds()})
			return err
		})
	}
	if err != nil || len(page) < limit {
		return int(deleted), "", err
	}
	return int(deleted), final, nil
}

// DropGuards has nothing to drop: see transactions.MakeGuard.
func (e *engine) DropGuards(context.Context, int) (int, error) { return 0, nil }

func (e *engine) Forget(ctx context.Context, idle time.Duration, limit int) (int, error) {
	var forgotten int64
	err := e.db.write(ctx, func(ctx context.Context, q *sqlitedb.Queries) (err error) {
		if _, err := q.DropDeadWatchers(ctx); err != nil {
			return err
		}
		forgotten, err = q.ForgetSessions(ctx, sqlitedb.ForgetSessionsParams{Idle: idle.Microseconds(),
			Most: int64(limit)})
		return err
	})
	return int(forgotten), err
}
