package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock/gen/mysqldb"
	"github.com/dblock-go/dblock/internal/driver"
)

// Patient has an engine come back to a locked row for as long as a test takes, and call obstructed
// each time.
func Patient(b driver.Backend, obstructed func()) {
	e := b.(*engine)
	e.rowTimeout, e.obstructed = time.Minute, obstructed
}

// Nap has the listeners of an engine sleep for so long with each statement, unless the DSN has a
// shorter readTimeout.
func Nap(b driver.Backend, d time.Duration) { b.(*engine).nap = d }

// Patience is how long LockTx waits for a row in a transaction; 0: without an end.
func Patience(ctx context.Context, tx driver.Tx) time.Duration { return tx.(inTx).patience(ctx) }

// ConnOf is the connection of an upkeep.
func ConnOf(up driver.Upkeep) *sql.Conn { return up.(upkeep).conn }

// Proof has a listener wait for so long for its own first KILL.
func Proof(b driver.Backend, d time.Duration) { b.(*engine).proof = d }

// OnSeveralWriters has an engine believe that its server is one of several nodes that write, or is
// not, until it reserves another connection.
func OnSeveralWriters(b driver.Backend, which string) {
	b.(*engine).info.Store(&serverInfo{writers: which})
}

// Wakes is why a client of the server does not wake all others.
func Wakes(b driver.Backend) error { return b.(*engine).wakes() }

// StopBetween runs a transaction that locks a name's row, and between between its two statements.
func StopBetween(ctx context.Context, b driver.Backend, name string, between func()) error {
	return b.(*engine).transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		if _, err := q.LockRow(ctx, name); err != nil {
			return nil, err
		}
		between()
		_, err := q.Clock(ctx)
		return nil, err
	})
}

// ByView has the statements of an engine name the view of the clock, which a test moves.
func ByView(b driver.Backend) {
	if e, ok := b.(driver.Engine[*sql.Tx]); ok {
		b = e.Backend
	}
	b.(*engine).prepared.byView = true
}

// Acknowledge marks grants of whole names as known to a session's listener, which knows these
// attempts, by their names.
func Acknowledge(ctx context.Context, b driver.Backend, session string, known map[string]string) error {
	l := &listener{session: session, known: map[string]grant{}}
	for attempt, name := range known {
		l.known[attempt] = grant{name: name}
	}
	return b.(*engine).transact(ctx, func(q *mysqldb.Queries) ([]string, error) {
		_, err := l.mark(ctx, q)
		return nil, err
	})
}

// AsWritten runs statements in the words in which they stand in queries/mysql.
func AsWritten(on connection) mysqldb.DBTX { return asWritten{on} }

type asWritten struct{ connection }

func (asWritten) Text(query string) string { return query }
