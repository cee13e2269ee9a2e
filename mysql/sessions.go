package mysql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/mysqlserver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

func (e *engine) Schema(ctx context.Context) (driver.Schema, error) {
	is, err := driver.Schema{In: e.prepared.tables.Stated().String()}, mysqlserver.Interpret(e.meet(ctx, e.db))
	switch {
	case err == nil:
		is, err = e.schema(ctx, e.queries())
	case errors.Is(err, driver.ErrSchema): // there are no tables
		is.Place, err = e.place(ctx, e.queries())
		err = mysqlserver.Interpret(err)
	}
	if is.In != "" && mysqlserver.Number(err) == mysqlserver.UnknownDatabase {
		err = driver.Fail(driver.ErrSchema,
			fmt.Errorf("create it, and run migrate.Up of migrate.Locks.In(%q): %w", is.In, err))
	}
	return is, err
}

func (e *engine) schema(ctx context.Context, q *mysqldb.Queries) (driver.Schema, error) {
	is := driver.Schema{In: e.prepared.tables.Stated().String()}
	row, there, err := find(ctx, func(ctx context.Context, _ struct{}) (mysqldb.SchemaRow, error) {
		return q.Schema(ctx)
	}, struct{}{})
	is.Emptied = err == nil && !there
	if err = mysqlserver.Interpret(err); err != nil && !errors.Is(err, driver.ErrSchema) {
		return is, err
	}
	is.Version, is.UsableFrom, err = int(row.Version), int(row.UsableFrom), nil
	if is.Version >= driver.SchemaVersion {
		is.Database, err = q.Database(ctx)
	}
	if err == nil && is.Check() != nil {
		is.Place, err = e.place(ctx, q)
	}
	return is, mysqlserver.Interpret(err)
}

// place describes where a connection looks for the tables.
func (e *engine) place(ctx context.Context, q *mysqldb.Queries) (string, error) {
	if in := e.prepared.tables.In(); in.String() != "" {
		return fmt.Sprintf("database %q", in), nil
	}
	db, err := q.Place(ctx)
	return fmt.Sprintf("database %q", text(db)), err
}

// OpenSession first examines a connection: settings that would make a grant worthless are refused
// before the first grant.
func (e *engine) OpenSession(ctx context.Context, s driver.Session) error {
	if err := e.side.Leaves(e.db.Stats().MaxOpenConnections); err != nil {
		return err
	}
	if err := e.learnDialect(ctx, e.db); err != nil {
		return mysqlserver.Interpret(err)
	}
	conn, err := e.db.Conn(ctx)
	if err == nil {
		if err = e.examine(ctx, conn); err == nil && s.First {
			err = e.refuseTriggers(ctx, conn)
		}
		_ = conn.Close()
	}
	if err != nil {
		return mysqlserver.Interpret(err)
	}
	err = e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		if err := q.OpenSession(ctx, mysqldb.OpenSessionParams{
			ID: s.ID, Host: s.Host, Pid: int64(s.PID), App: s.App,
		}); err != nil {
			return nil, err
		}
		return nil, q.OpenHeartbeat(ctx, mysqldb.OpenHeartbeatParams{Session: s.ID, Ttl: s.TTL.Microseconds()})
	})
	if err != nil {
		return err
	}
	if err := e.tryLocks(ctx, s.ID); err != nil {
		_ = e.EndSession(ctx, s.ID, true)
		return err
	}
	return nil
}

func (e *engine) EndSession(ctx context.Context, session string, empty bool) error {
	return e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		_, there, err := lockSession(ctx, q, session)
		if err != nil || !there {
			return nil, err
		}
		if err := bury(ctx, q, session); err != nil || !empty {
			return nil, err
		}
		_, err = forget(ctx, q, session)
		return nil, err
	})
}

func (e *engine) Bury(ctx context.Context, session, by, because string) (burial driver.Burial, err error) {
	err = e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		dead, there, err := lockSession(ctx, q, session)
		switch {
		case err != nil || !there:
			burial = driver.Missing
			return nil, err
		case dead:
			burial = driver.DeadAlready
			return nil, nil
		}
		burial = driver.Buried
		err = q.BurySession(ctx, mysqldb.BurySessionParams{ID: session, BuriedBy: by, Because: because})
		if err == nil {
			err = bury(ctx, q, session)
		}
		return nil, err
	})
	return burial, err
}

// forget deletes a dead session to which nothing refers, and its watchers. It deletes each row by
// its key: at the application's isolation level a range would be locked.
func forget(ctx context.Context, q *mysqldb.Queries, session string) (int64, error) {
	watched, err := q.WatchedBy(ctx, session)
	if err != nil {
		return 0, err
	}
	for _, w := range watched {
		if _, err := q.Unwatch(ctx, mysqldb.UnwatchParams(w)); err != nil {
			return 0, err
		}
	}
	return q.ForgetSession(ctx, session)
}

// bury ends a session whose row is locked. A remaining heartbeat would keep the session alive for
// its client, so bury proves that it is gone.
func bury(ctx context.Context, q *mysqldb.Queries, session string) error {
	if err := q.EndSession(ctx, session); err != nil {
		return err
	}
	dropped, err := q.DropHeartbeat(ctx, session)
	if err != nil || dropped > 0 {
		return err
	}
	if _, there, err := find(ctx, q.LockHeartbeat, session); err != nil || !there {
		return err
	}
	return transaction.ErrUnproven
}

func (e *engine) Expire(ctx context.Context, session string) (dead bool, err error) {
	err = e.transact(ctx, func(q *mysqldb.Queries) (_ []string, err error) {
		dead, err = expire(ctx, q, session)
		return nil, err
	})
	return dead && err == nil, err
}

// expire is Expire within a transaction.
func expire(ctx context.Context, q *mysqldb.Queries, session string) (dead bool, err error) {
	dead, there, err := lockSession(ctx, q, session)
	if err != nil {
		return false, err
	}
	if !there {
		// This upsert must follow LockSession, which does not wait: the upsert waits for a
		// transaction that ends the session.
		if _, err := q.RestoreSession(ctx, session); err != nil {
			return false, err
		}
		if dead, _, err = lockSession(ctx, q, session); err != nil {
			return false, err
		}
	}
	if !dead {
		expiresAt, beats, err := find(ctx, q.LockHeartbeat, session)
		if err != nil { // on the side pool the wait for a heartbeat is bounded
			return false, busy(err)
		}
		now, err := q.Clock(ctx) // after the lock: a heartbeat in flight was waited for
		if err != nil || beats && expiresAt > now {
			return false, err
		}
	}
	return true, bury(ctx, q, session)
}

func (e *engine) Expired(ctx context.Context, limit int) ([]string, error) {
	var expired []string
	err := e.lone(ctx, func(q *mysqldb.Queries) (err error) {
		expired, err = q.Expired(ctx, int32(limit))
		return err
	})
	return expired, err
}

func (e *engine) Orphans(ctx context.Context, limit int) ([]driver.Claim, error) {
	limit = min(limit, math.MaxInt32-1)
	var list []driver.Claim
	err := e.lone(ctx, func(q *mysqldb.Queries) error {
		rows, err := q.Orphans(ctx, int32(limit+1))
		list = make([]driver.Claim, len(rows))
		for i, row := range rows {
			list[i] = driver.Claim(row)
		}
		return err
	})
	return upTo(limit, list, err)
}

func (e *engine) Claims(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	return claims(ctx, e.lone, session, limit)
}

// claims is Claims with a statement that lone runs.
func claims(
	ctx context.Context, lone func(context.Context, func(q *mysqldb.Queries) error) error, session string, limit int,
) ([]driver.Claim, error) {
	limit = min(limit, math.MaxInt32-1)
	var list []driver.Claim
	err := lone(ctx, func(q *mysqldb.Queries) error {
		rows, err := q.Claims(ctx, mysqldb.ClaimsParams{Session: session, Limit: int32(limit + 1)})
		list = make([]driver.Claim, len(rows))
		for i, row := range rows {
			list[i] = driver.Claim(row)
		}
		return err
	})
	return upTo(limit, list, err)
}

// upTo returns up to limit claims of a list that has one more row than the limit, or an end mark.
func upTo(limit int, list []driver.Claim, err error) ([]driver.Claim, error) {
	mark := func(c driver.Claim) bool { return c.Name == "" }
	if len(list) <= limit {
		list, err = whole(list, err, mark)
	} else {
		list = slices.DeleteFunc(list, mark)
	}
	return list[:min(limit, len(list))], mysqlserver.Interpret(err)
}

func (e *engine) Overdue(ctx context.Context, limit int) ([]driver.State, error) {
	var rows []mysqldb.OverdueRow
	var shares []mysqldb.OverdueSharesRow
	err := e.lone(ctx, func(q *mysqldb.Queries) (err error) {
		if rows, err = q.Overdue(ctx, int32(limit)); err == nil {
			shares, err = q.OverdueShares(ctx, int32(limit))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	states := make([]driver.State, 0, len(rows)+len(shares))
	for _, row := range rows {
		states = append(states, driver.State{Name: row.Name, Holder: protocol.Holder{
			Session: row.SessionID, Grant: protocol.Grant{Token: row.LastToken, Lease: -1},
		}})
	}
	for _, row := range shares {
		states = append(states, driver.State{Name: row.Name, Holder: protocol.Holder{
			Session: row.SessionID, Units: int(row.Units), Grant: protocol.Grant{Token: row.Token, Lease: -1},
		}})
	}
	return states[:min(limit, len(states))], nil
}

func (e *engine) Miscounted(ctx context.Context, after, upto string, limit int) ([]string, error) {
	var names []string
	err := e.lone(ctx, func(q *mysqldb.Queries) (err error) {
		names, err = q.Miscounted(ctx, mysqldb.MiscountedParams{After: after, Upto: upto, Limit: count(limit)})
		return err
	})
	return names, err
}

// purged is the number of rows that one transaction deletes, each in a round trip during which all
// of them are locked. TryLock retries a locked row for about that long.
const purged = 8

func (e *engine) Purge(
	ctx context.Context, idle time.Duration, after string, limit int,
) (deleted int, next string, err error) {
	var page []mysqldb.PurgePageRow
	err = e.lone(ctx, func(q *mysqldb.Queries) (err error) {
		page, err = q.PurgePage(ctx, mysqldb.PurgePageParams{Idle: idle.Microseconds(), After: after,
			Limit: int32(limit)})
		return err
	})
	if err != nil {
		return 0, "", err
	}
	var names []string
	for _, row := range page {
		if row.Idle != 0 {
			names = append(names, row.Name)
		}
	}
	for some := range slices.Chunk(names, e.server().facts().rows(purged)) {
		err := e.transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
			locked, err := q.LockIdle(ctx, mysqldb.LockIdleParams{Names: pad(some), Idle: idle.Microseconds()})
			for _, name := range locked {
				if err := q.DropLock(ctx, name); err != nil {
					return nil, err
				}
			}
			some = locked
			return nil, err
		})
		if errors.Is(err, driver.ErrBusy) {
			continue
		}
		if err != nil {
			return deleted, "", err
		}
		deleted += len(some)
	}
	if n := len(page); n > 0 && n == limit {
		next = page[n-1].Name
	}
	return deleted, next, nil
}

func (e *engine) Forget(ctx context.Context, idle time.Duration, limit int) (int, error) {
	var ids []string
	err := e.lone(ctx, func(q *mysqldb.Queries) (err error) {
		ids, err = q.Forgettable(ctx, mysqldb.ForgettableParams{Idle: idle.Microseconds(), Limit: int32(limit)})
		return err
	})
	if err != nil {
		return 0, err
	}
	forgotten := 0
	for _, id := range ids {
		var n int64
		err := e.transact(ctx, func(q *mysqldb.Queries) (_ []string, err error) {
			if _, there, err := lockSession(ctx, q, id); err != nil || !there {
				return nil, err
			}
			n, err = forget(ctx, q, id)
			return nil, err
		})
		switch {
		case err == nil:
			forgotten += int(n)
		case !errors.Is(err, driver.ErrBusy):
			return forgotten, err
		}
	}
	return forgotten, nil
}
