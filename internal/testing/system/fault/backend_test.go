//go:build unix

package fault

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	dblockmysql "github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// kindStdlib is PostgreSQL over database/sql, to an actor.
const kindStdlib = "stdlib"

// openEngine opens a pool of its own for each client, as processes do.
func openEngine(kind, dsn string) (backend driver.Backend, closePool func(), err error) {
	if kind == dbtest.KindPostgres {
		pool, err := pgxpool.New(context.Background(), dsn)
		if err != nil {
			return nil, nil, err
		}
		return postgres.New(pool).Backend, pool.Close, nil
	}
	db, err := openSQL(kind, dsn)
	if err != nil {
		return nil, nil, err
	}
	closePool = func() { _ = db.Close() }
	switch kind {
	case kindStdlib:
		return postgres.NewSQL(db).Backend, closePool, nil
	case dbtest.KindSQLite:
		return sqlite.New(db).Backend, closePool, nil
	}
	return dblockmysql.New(db).Backend, closePool, nil
}

func openSQL(kind, dsn string) (*sql.DB, error) {
	switch kind {
	case dbtest.KindPostgres, kindStdlib:
		return sql.Open("pgx", dsn)
	case dbtest.KindSQLite:
		return sql.Open("sqlite", dsn)
	case dbtest.KindMySQL, dbtest.KindMariaDB:
		c, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		c.Logger = &mysql.NopLogger{} // it would tell of every connection that a test cuts
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(connector), nil
	}
	return nil, fmt.Errorf("no engine for %s", kind)
}

// recorder tells of the places in queues that this client has, and which of them it gives up of its
// own will: in the database, that looks the same as a waiter that was passed over.
type recorder struct {
	driver.Backend
	report *reporter
	db     *sql.DB

	mu       sync.Mutex // protects sessions
	sessions map[string]bool
}

func (r *recorder) OpenSession(ctx context.Context, s driver.Session) error {
	r.mu.Lock()
	r.sessions[s.ID] = true
	r.mu.Unlock()
	return r.Backend.OpenSession(ctx, s)
}

func (r *recorder) Run(ctx context.Context, ops ...protocol.Op) ([]protocol.Result, error) {
	return drivertest.Ways{Remove: r.remove, Join: r.join, Other: r.other}.Run(ctx, r.Backend, ops...)
}

func (r *recorder) remove(ctx context.Context, m driver.Removal) ([]driver.Handoff, bool, error) {
	r.mu.Lock()
	own := r.sessions[m.Session]
	r.mu.Unlock()
	if own && m.Cause == driver.ByAttempt {
		r.report.report(event{What: evLeave, Name: m.Name, Attempt: m.Attempt})
	}
	next, left, err := drivertest.Remove(ctx, r.Backend, m)
	r.handed(m.Name, next)
	return next, left, err
}

// ticketLimit is how long a ticket is looked for. Not to know it is no failure.
const ticketLimit = 100 * time.Millisecond

func (r *recorder) join(ctx context.Context, q driver.Request) (driver.Grant, protocol.Outcome, error) {
	at := session.Boottime()
	g, outcome, err := drivertest.Join(ctx, r.Backend, q)
	if err != nil || outcome != protocol.Queued {
		return g, outcome, err
	}
	ctx, cancel := context.WithTimeout(ctx, ticketLimit)
	defer cancel()
	var ticket int64
	if r.db.QueryRowContext(ctx, fmt.Sprintf("SELECT ticket FROM dblock_waiters WHERE attempt = '%s'",
		q.Attempt)).Scan(&ticket) == nil {
		r.report.report(event{What: evQueued, At: at, Name: q.Name, Session: q.Session, Attempt: q.Attempt,
			Ticket: ticket})
	}
	return g, outcome, nil
}

// granted tells of a grant to an attempt that may have waited.
func (r *recorder) granted(name, session, attempt string, g driver.Grant) {
	r.mu.Lock()
	own := r.sessions[session]
	r.mu.Unlock()
	if own {
		r.report.report(event{What: evGranted, Name: name, Session: session, Attempt: attempt, Token: g.Token})
	}
}

func (r *recorder) handed(name string, next []driver.Handoff) {
	for _, n := range next {
		r.granted(name, n.Session, n.Attempt, n.Grant)
	}
}

func (r *recorder) Read(ctx context.Context, session string, names []string, waiters int) ([]driver.State, error) {
	states, err := r.Backend.Read(ctx, session, names, waiters)
	for _, s := range states {
		for _, own := range s.Granted {
			r.granted(s.Name, session, own.Attempt, own.Grant)
		}
	}
	return states, err
}

func (r *recorder) other(ctx context.Context, op protocol.Op) (protocol.Result, error) {
	result, err := driver.Do(ctx, r.Backend, op)
	r.handed(op.On(), result.Next)
	return result, err
}

func (r *recorder) Upkeep(ctx context.Context, session string) (driver.Upkeep, error) {
	up, err := r.Backend.Upkeep(ctx, session)
	return drivertest.Ear{Upkeep: up, Hear: func(session string, h driver.Hint) driver.Hint {
		if h.Grant.Token != 0 {
			r.granted("", session, h.Attempt, h.Grant)
		}
		return h
	}}, err
}

// wronged tells where a session is told that it is dead, and the database has it alive.
func (r *recorder) wronged(ctx context.Context, session string) {
	var n int
	err := r.db.QueryRowContext(ctx,
		fmt.Sprintf("SELECT count(*) FROM dblock_sessions s JOIN dblock_heartbeats h ON h.session_id = s.id WHERE "+
			"s.id = '%s' AND NOT s.dead", session)).Scan(&n)
	if err == nil && n > 0 {
		r.report.report(event{What: evWronged, Session: session})
	}
}
