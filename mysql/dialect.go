package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/foreign"
	"github.com/dblock-go/dblock/internal/tables"
	"github.com/dblock-go/dblock/internal/transaction"
)

// dialect has the answers in which the servers differ.
type dialect struct {
	version string // that the server states
	// now is the expression of the time, in microseconds since 1970.
	now string
	// rewrites turns the statements of queries/mysql into those of the server; nil: they are the
	// same.
	rewrites *strings.Replacer
	// step is the time by which the clock may be late in one statement and not in the next.
	step time.Duration
	// plain is set where only the general way of run.go works, and where a statement needs a
	// transaction around it: the transaction has the clock, and bounds the wait for a row.
	plain bool
	// skips is the number of rows that a statement locks while it leaves out those that other
	// transactions have locked. With 1, such a statement fails instead.
	skips int
	// deaf is the reason why a listener cannot be woken; nil: it can.
	deaf error
	// sleepsAtLock is set where a listener waits for a named lock, not in SLEEP.
	sleepsAtLock bool
	// takesRow is set where TakeRow is cheaper than TakeLock.
	takesRow bool
	// timesOut is set where NOWAIT fails as a wait does that lasted too long.
	timesOut bool
	// silent is set where an INSERT does not return a LAST_INSERT_ID of its values.
	silent bool
	// lasting is set where a level of isolation that is meant for one transaction is that of all
	// later ones. A connection of the pool that had such a transaction does not return there.
	lasting bool
	// sharded returns ErrConfig if a database, "": the default one, has the rows of its tables in
	// several servers; nil: none has.
	sharded func(ctx context.Context, on *sql.Conn, database string) error
	// open is the variable that is 0 outside of a transaction; "": there is none.
	open string
	// writes is set where the lock of a row may be lost before the commit, which fails only if
	// another transaction has written the row: every transaction that relies on a lock writes.
	writes bool
	// pairs are the locks that dblock uses, and that must exclude.
	pairs []pair
	// settings are the settings of a connection that the server has in addition to MySQL's.
	settings []setting
}

const utcNow = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"

var (
	inMySQL   = &dialect{now: utcNow, skips: maxList, pairs: pairsWith("FOR SHARE")}
	inMariaDB = &dialect{
		now: utcNow, skips: maxList, sleepsAtLock: true, takesRow: true, timesOut: true,
		open: transaction.OpenInMariaDB, pairs: pairsWith("LOCK IN SHARE MODE"),
	}
)

// pairsWith returns the locks of InnoDB.
func pairsWith(share string) []pair {
	return []pair{
		{"FOR UPDATE", []string{"FOR UPDATE NOWAIT", "FOR UPDATE SKIP LOCKED", share + " NOWAIT"}},
		{share, []string{"FOR UPDATE NOWAIT"}},
	}
}

// dialectOf returns the dialect of a server.
func dialectOf(version string) *dialect {
	switch {
	case strings.Contains(version, "TiDB"):
		return inTiDB
	case strings.Contains(version, "Vitess"):
		return inVitess
	case strings.Contains(version, "MariaDB"):
		return inMariaDB
	}
	return inMySQL
}

// spell returns a statement for the server. byView keeps the view of the clock, which a test moves.
// The servers make a temporary table wherever a statement names the view, and sqlc does not know
// UTC_TIMESTAMP(6).
func (d *dialect) spell(text string, byView bool) string {
	if !byView {
		text = strings.ReplaceAll(text, clock, d.now)
		if d.plain {
			text = strings.ReplaceAll(text, "dblock_clock c", "(SELECT "+d.now+" AS now_us) c")
		}
	}
	if d.rewrites != nil {
		text = d.rewrites.Replace(text)
	}
	return text
}

// dialect returns the dialect of the server. MUST be called after meet.
func (e *engine) dialect() *dialect { return e.prepared.dialect.Load() }

// meet learns the dialect of the server and the place of the tables, once. It refuses a server on
// which locks would not exclude. It runs before all other statements, which such a server may not
// answer.
func (e *engine) meet(ctx context.Context, on querier) error {
	if err := e.learnDialect(ctx, on); err != nil {
		return err
	}
	return e.prepared.tables.Find(func() (*tables.In, error) { return look(ctx, on) })
}

// look returns the default database of a connection, if it has the tables. It asks by their full
// name: the second statement may run on another connection of a pool.
func look(ctx context.Context, on querier) (*tables.In, error) {
	var db sql.NullString
	if err := on.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&db); err != nil {
		return nil, err
	}
	in, err := tables.Found(db.String)
	if err != nil {
		return nil, driver.Fail(driver.ErrConfig, err)
	}
	err = on.QueryRowContext(ctx, in.MySQL("SELECT COUNT(*) FROM dblock_schema")).Scan(new(int))
	if transaction.Denied(err) { // a later statement tells which right is missing
		err = nil
	}
	return in, err
}

func (e *engine) learnDialect(ctx context.Context, on querier) error {
	if e.dialect() != nil {
		return nil
	}
	var version string
	if err := on.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return err
	}
	of := dialectOf(version)
	if err := foreign.Refuse(version); err != nil && !of.plain && !e.anyServer {
		return err
	}
	d := *of
	d.version = version
	e.prepared.dialect.Store(&d)
	return nil
}
