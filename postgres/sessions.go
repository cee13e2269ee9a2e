package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/foreign"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/transaction"
)

func (e *engine) Schema(ctx context.Context) (driver.Schema, error) {
	is, err := e.schema(ctx, e.db)
	if err == nil && is.Check() == nil {
		err = e.checkWhole(ctx)
	}
	return is, err
}

func (e *engine) schema(ctx context.Context, db executor) (driver.Schema, error) {
	var row postgresdb.SchemaRow
	var there bool
	err := pgserver.Interpret(db.exec(ctx, query(postgresdb.Schema, struct{}{}).found(&row, &there)))
	if err != nil && !errors.Is(err, driver.ErrSchema) {
		return driver.Schema{}, err
	}
	is := driver.Schema{Version: int(row.Version), UsableFrom: int(row.UsableFrom), In: e.tables.Stated().String(),
		Emptied: err == nil && !there}
	if is.Version >= driver.SchemaVersion {
		err = pgserver.Interpret(db.exec(ctx, query(postgresdb.Database, struct{}{}).found(&is.Database, &there)))
		if err != nil {
			return is, err
		}
	}
	if is.Check() != nil {
		is.Place, err = e.lookedAt(ctx, db)
	}
	return is, err
}

// checkWhole returns ErrSchema if functions or views of the tables' schema use those of another
// one: somebody has copied them. Rows of this schema's clients would go there.
func (e *engine) checkWhole(ctx context.Context) error {
	home := e.tables.In().String()
	var row, first postgresdb.StraysRow
	n := 0
	err := e.db.exec(ctx, query(postgresdb.Strays, home).into(&row, func() {
		if n++; n == 1 {
			first = row
		}
	}))
	if err != nil || n == 0 {
		return e.toldBy(err)
	}
	return driver.Fail(driver.ErrSchema, fmt.Errorf("in schema %q %s and %d more use the tables of schema %q, from "+
		"which they were copied: remove dblock's tables, views and functions from schema %q, and make them by "+
		"migrate.Up of migrate.Locks.In(%q)", home, first.Stray, n-1, first.Place, home, home))
}

// lookedAt describes where a connection looks for the tables. It returns ErrConfig if row level
// security hides the version of the tables. A server without the functions of the statement
// (AnyServer) does not tell.
func (e *engine) lookedAt(ctx context.Context, db executor) (string, error) {
	var row postgresdb.PlaceRow
	var there bool
	const table = anchor
	if err := db.exec(ctx, query(postgresdb.Place, e.tables.In().Postgres(table)).found(&row, &there)); err != nil {
		return "", nil
	}
	switch place := fmt.Sprintf("database %q", row.Db); {
	case row.Hides:
		return place, driver.Fail(driver.ErrConfig, fmt.Errorf("row level security hides the rows of table %s from "+
			"role %q: %s", table, row.Role, pgserver.RowSecurity))
	case e.tables.In() != nil:
		return fmt.Sprintf("%s, schema %q", place, e.tables.In()), nil
	case row.Schemas == "":
		return fmt.Sprintf("%s, where role %q has no schema of its search_path (%s), or may use none", place, row.Role,
			row.Path), nil
	default:
		return fmt.Sprintf(`%s, schema "%s"`, place, row.Schemas), nil
	}
}

const known = "SELECT version(), current_setting('client_encoding'), current_setting('server_encoding')"

// examine refuses a server on which locks would not exclude, a pooler that makes no transactions,
// and a pool whose connections are not readable. Settings that the application changes on a single
// connection of a *sql.DB are not seen here.
func (e *engine) examine(ctx context.Context) error {
	var version string
	err := e.db.exec(ctx, statement{sql: known}.examine(&version))
	if foreign := foreign.Refuse(version); foreign != nil && !e.anyServer {
		return foreign
	}
	if err != nil {
		return err
	}
	// in two round trips: a transaction of one would pass through such a pooler
	tx, err := e.db.begin(ctx)
	if err == nil {
		tx.rollback(ctx)
	}
	return err
}

// refuseTriggers returns ErrConfig if a table has a trigger or a rule, which may swallow the writes
// of dblock's statements, or wait for their locks. A server without these catalogs (AnyServer) does
// not tell.
func (e *engine) refuseTriggers(ctx context.Context) error {
	var row postgresdb.TriggersRow
	var there bool
	err := e.db.exec(ctx, query(postgresdb.Triggers, e.tables.In().Postgres(anchor)).found(&row, &there))
	if err == nil && there {
		return driver.Triggered(row.Kind, row.Name, row.Relation)
	}
	return e.toldBy(err)
}

// toldBy returns the error of a statement that reads catalogs. A server without these catalogs
// (AnyServer) does not tell, which is no error.
func (e *engine) toldBy(err error) error {
	if state := pgserver.State(err); e.anyServer && (strings.HasPrefix(state, "42") || strings.HasPrefix(state, "0A")) {
		return nil
	}
	return pgserver.Interpret(err)
}

func (e *engine) OpenSession(ctx context.Context, s driver.Session) error {
	if !s.Detached {
		if err := e.examine(ctx); err != nil {
			return pgserver.Interpret(err)
		}
		if err := e.side.Leaves(e.db.connections().Most); err != nil {
			return err
		}
	}
	if s.First {
		if err := e.refuseTriggers(ctx); err != nil {
			return err
		}
	}
	var opened int64
	err := e.db.exec(ctx, query(postgresdb.OpenSession, postgresdb.OpenSessionParams{
		ID: s.ID, Host: s.Host, Pid: int64(s.PID), App: s.App, Ttl: s.TTL.Microseconds(),
	}).into(&opened, func() {}))
	if err == nil && opened == 0 {
		return transaction.ErrSwallowed
	}
	return pgserver.Interpret(err)
}

func (e *engine) EndSession(ctx context.Context, session string, empty bool) error {
	var dead, there bool
	statements := []statement{
		query(postgresdb.EndSession, session),
		query(postgresdb.DropHeartbeat, session),
		query(postgresdb.SessionDead, session).found(&dead, &there),
	}
	if empty {
		statements = append(statements, query(postgresdb.ForgetSession, session))
	}
	err := e.transact(ctx, statements...)
	if err == nil && there && !dead {
		err = errEnding
	}
	return pgserver.Interpret(err)
}

func (e *engine) Expire(ctx context.Context, session string) (dead bool, err error) {
	tx, err := e.db.begin(ctx, query(postgresdb.SetLockTimeout, e.lockTimeout))
	if err != nil {
		return false, pgserver.Interpret(err)
	}
	if dead, err = expire(ctx, tx, session); err != nil {
		tx.rollback(ctx)
		return false, pgserver.Interpret(err)
	}
	err = tx.commit(ctx)
	return dead && err == nil, pgserver.Interpret(err)
}

func (e *engine) Bury(ctx context.Context, session, by, because string) (driver.Burial, error) {
	tx, err := e.db.begin(ctx, query(postgresdb.SetLockTimeout, e.lockTimeout))
	if err != nil {
		return driver.Missing, pgserver.Interpret(err)
	}
	burial, err := bury(ctx, tx, session, by, because)
	if err != nil {
		tx.rollback(ctx)
		return driver.Missing, pgserver.Interpret(err)
	}
	return burial, pgserver.Interpret(tx.commit(ctx))
}

func bury(ctx context.Context, on runner, session, by, because string) (driver.Burial, error) {
	var living, dead, there bool
	err := on.exec(ctx,
		query(postgresdb.LockLiving, session).found(new(bool), &living),
		query(postgresdb.SessionDead, session).found(&dead, &there),
	)
	switch {
	case err != nil || !there:
		return driver.Missing, err
	case dead:
		return driver.DeadAlready, nil
	case !living:
		return driver.Missing, errEnding
	}
	return driver.Buried, on.exec(ctx,
		query(postgresdb.BurySession, postgresdb.BurySessionParams{ID: session, By: by, Because: because}),
		query(postgresdb.DropHeartbeat, session),
	)
}

var errEnding = driver.Fail(driver.ErrBusy, errors.New("another transaction has locked the row of the session"))

// expire ends a session whose TTL has passed, or that has no row. It looks at the heartbeat only if
// it has locked the session's row: another client that ends the session has locked both.
func expire(ctx context.Context, on runner, session string) (dead bool, err error) {
	var living bool
	err = on.exec(ctx,
		query(postgresdb.RestoreSession, session),
		query(postgresdb.LockLiving, session).found(new(bool), &living),
		query(postgresdb.SessionDead, session).found(&dead, new(bool)),
	)
	if err == nil && !dead && !living {
		err = errEnding
	}
	if err != nil {
		return false, err
	}
	err = on.exec(ctx,
		query(postgresdb.LockHeartbeat, session),
		query(postgresdb.ExpireSession, session),
		query(postgresdb.DropHeartbeat, session),
		query(postgresdb.SessionDead, session).found(&dead, new(bool)),
	)
	return dead, err
}

func (u upkeep) Heartbeat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return u.of.heartbeat(ctx, u.conn, session, ttl)
}

func (e *engine) Beat(ctx context.Context, session string, ttl time.Duration) (bool, error) {
	return e.heartbeat(ctx, e.db, session, ttl)
}

// executor runs single statements: a database, or a connection.
type executor interface {
	exec(ctx context.Context, s statement) error
}

func (e *engine) heartbeat(
	ctx context.Context, on executor, session string, ttl time.Duration,
) (bool, error) {
	var row postgresdb.HeartbeatRow
	var alive bool
	err := on.exec(ctx, query(postgresdb.Heartbeat, postgresdb.HeartbeatParams{
		Ttl: ttl.Microseconds(), Session: session, Build: driver.SchemaVersion,
	}).found(&row, &alive))
	if err != nil || alive {
		return alive, pgserver.Interpret(err)
	}
	tables, err := e.schema(ctx, on)
	if err != nil {
		return false, err
	}
	return false, tables.Check()
}

// mostKnown limits the length of a statement. A session that knows more claims lists all of them.
const mostKnown = 10_000

// Claims makes a step of the walk over all names, unless it lists all claims.
func (u upkeep) Claims(ctx context.Context, session string, known []driver.Claim) ([]driver.Claim, error) {
	if known == nil || len(known) > mostKnown {
		return claims(ctx, u.conn, session, nil, everything, driver.All)
	}
	u.conn.steps++
	return claims(ctx, u.conn, session, known, u.conn.steps, driver.All)
}

func (e *engine) Claims(ctx context.Context, session string, limit int) ([]driver.Claim, error) {
	return claims(ctx, e.db, session, nil, everything, limit)
}

// everything is the step of dblock_claims that reads all names.
const everything = -1

func claims(
	ctx context.Context, on executor, session string, known []driver.Claim, step int64, limit int,
) (claims []driver.Claim, err error) {
	type key struct {
		Name  string
		Token int64
	}
	var keys []key
	for _, k := range known {
		keys = append(keys, key{k.Name, k.Token})
	}
	var row postgresdb.ClaimsRow
	err = on.exec(ctx, query(postgresdb.Claims, postgresdb.ClaimsParams{
		Session: session, Known: list(keys), Step: step, Most: int32(limit),
	}).into(&row, func() { claims = append(claims, driver.Claim(row)) }))
	return claims, pgserver.Interpret(err)
}

func (e *engine) Orphans(ctx context.Context, limit int) (orphans []driver.Claim, err error) {
	var row postgresdb.OrphansRow
	err = e.db.exec(ctx, query(postgresdb.Orphans, int32(limit)).into(&row, func() {
		orphans = append(orphans, driver.Claim(row))
	}))
	return orphans, pgserver.Interpret(err)
}

func (e *engine) Expired(ctx context.Context, limit int) ([]string, error) {
	return e.list(ctx, query(postgresdb.Expired, int32(limit)))
}

func (e *engine) Overdue(ctx context.Context, limit int) ([]driver.State, error) {
	var row postgresdb.OverdueRow
	var states []driver.State
	err := e.db.exec(ctx, query(postgresdb.Overdue, int32(limit)).into(&row, func() {
		states = append(states, driver.State{Name: row.Name, Holder: protocol.Holder{
			Session: row.Session, Units: int(row.Units), Grant: protocol.Grant{Token: row.Token, Lease: -1},
		}})
	}))
	return states, pgserver.Interpret(err)
}

func (e *engine) Miscounted(ctx context.Context, after, upto string, limit int) (names []string, err error) {
	var name string
	err = e.db.exec(ctx, query(postgresdb.Miscounted, postgresdb.MiscountedParams{
		After: after, Upto: upto, Most: int32(limit),
	}).into(&name, func() { names = append(names, name) }))
	return names, pgserver.Interpret(err)
}

func (e *engine) Purge(ctx context.Context, idle time.Duration, after string, limit int) (int, string, error) {
	var row postgresdb.PurgeRow
	var there bool
	err := e.db.exec(ctx, query(postgresdb.Purge, postgresdb.PurgeParams{
		After: after, Most: int32(limit), Idle: idle.Microseconds(),
	}).found(&row, &there))
	if int(row.Walked) < limit {
		row.Last = ""
	}
	return int(row.Deleted), row.Last, pgserver.Interpret(err)
}

func (e *engine) Forget(ctx context.Context, idle time.Duration, limit int) (int, error) {
	forgotten, err := e.list(ctx, query(postgresdb.ForgetSessions, postgresdb.ForgetSessionsParams{
		Idle: idle.Microseconds(), Most: int32(limit),
	}))
	return len(forgotten), err
}

func (e *engine) list(ctx context.Context, s statement) ([]string, error) {
	var id string
	var ids []string
	err := e.db.exec(ctx, s.into(&id, func() { ids = append(ids, id) }))
	return ids, pgserver.Interpret(err)
}
