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
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	dblockmysql "github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// openEngine opens a pool of its own for each client, as processes do.
func openEngine(kind, dsn string) (backend driver.Backend, closePool func(), err error) {
	if kind == dbtest.KindPostgres {
		pool, err := pgxpool.New(context.Background(), dsn)
		if err != nil {
			return nil, nil, err
		}
		return inside.Of(postgres.New(pool)).Backend, pool.Close, nil
	}
	db, err := openSQL(kind, dsn)
	if err != nil {
		return nil, nil, err
	}
	closePool = func() { _ = db.Close() }
	if kind == dbtest.KindSQLite {
		return inside.Of(sqlite.New(db)).Backend, closePool, nil
	}
	return inside.Of(dblockmysql.New(db)).Backend, closePool, nil
}

func openSQL(kind, dsn string) (*sql.DB, error) {
	switch kind {
	case dbtest.KindPostgres:
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
	report *reporter
	db     *sql.DB
	beats  bool // tells of sessions and their heartbeats, too

	mu       sync.Mutex // protects sessions
	sessions map[string]bool
}

func (r *recorder) hook(ctx context.Context, c *fakedb.Call) error {
	at := session.Boottime()
	switch {
	case c.Method == "OpenSession":
		r.mu.Lock()
		r.sessions[c.Session] = true
		r.mu.Unlock()
	case c.Method == "Listen":
		c.Hear = func(h protocol.Hint) protocol.Hint {
			if h.Grant.Token != 0 {
				r.granted("", c.Session, h.Attempt, h.Grant)
			}
			return h
		}
	default:
		r.leaves(c.Ops)
	}
	err := c.Do(ctx)
	if c.Op() != nil && err == nil {
		c.Each(func(op protocol.Op, result protocol.Result) {
			if join, joins := op.(protocol.Join); joins && result.Outcome == protocol.Queued && result.Ahead == 0 {
				r.queued(ctx, at, join.Request)
			}
			for _, n := range result.Next {
				r.granted(op.On(), n.Session, n.Attempt, n.Grant)
			}
		})
	}
	for _, s := range c.States {
		for _, own := range s.Granted {
			r.granted(s.Name, c.Session, own.Attempt, own.Grant)
		}
	}
	switch {
	case err != nil:
	case c.Beats() && !c.Alive:
		r.wronged(ctx, c.Session)
	case !r.beats:
	case c.Method == "OpenSession":
		r.report.report(event{What: evOpened, At: at, Session: c.Session})
	case c.Beats():
		r.report.report(event{What: evBeat, At: at, Session: c.Session})
	}
	return err
}

// leaves tells of the places that are about to be given up.
func (r *recorder) leaves(ops []protocol.Op) {
	for _, op := range ops {
		switch op := op.(type) {
		case protocol.Sequence:
			r.leaves(op)
		case protocol.Removal:
			if op.Cause == protocol.ByAttempt && r.own(op.Session) {
				r.report.report(event{What: evLeave, Name: op.Name, Attempt: op.Attempt})
			}
		}
	}
}

// own reports whether a session is this client's.
func (r *recorder) own(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[session]
}

// ticketLimit is how long a ticket is looked for. Not to know it is no failure.
const ticketLimit = 100 * time.Millisecond

// queued tells of the ticket of a request that has joined a queue.
func (r *recorder) queued(ctx context.Context, at time.Duration, q protocol.Request) {
	ctx, cancel := context.WithTimeout(ctx, ticketLimit)
	defer cancel()
	var ticket int64
	if r.db.QueryRowContext(ctx, fmt.Sprintf("SELECT ticket FROM dblock_waiters WHERE attempt = '%s'",
		q.Attempt)).Scan(&ticket) == nil {
		r.report.report(event{What: evQueued, At: at, Name: q.Name, Session: q.Session, Attempt: q.Attempt,
			Ticket: ticket})
	}
}

// granted tells of a grant to an attempt that may have waited.
func (r *recorder) granted(name, session, attempt string, g protocol.Grant) {
	if r.own(session) {
		r.report.report(event{What: evGranted, Name: name, Session: session, Attempt: attempt, Token: g.Token})
	}
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
