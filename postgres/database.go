package postgres

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/gen/postgresdb"
	"github.com/dblock-go/dblock/internal/connpool"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/pgserver"
	"github.com/dblock-go/dblock/internal/transaction"
)

// database runs statements: over a pgx pool, or over database/sql.
type database interface {
	validate() error
	connections() driver.Pool
	// dropReadOnly closes the pool's idle connections to a server that is read-only.
	dropReadOnly(ctx context.Context)
	// exec runs statements one by one on any connection, each its own transaction.
	exec(ctx context.Context, s statement) error
	// transact runs statements as one transaction at READ COMMITTED.
	transact(ctx context.Context, s ...statement) error
	// begin is transact up to the COMMIT.
	begin(ctx context.Context, s ...statement) (opened, error)
	// reserve opens a connection beside the application's, under the name of a client's app.
	reserve(ctx context.Context, app string) (connection, error)
	// source is the pool from which reserve takes connections; nil: none.
	source() any
	// orphaned returns ErrConfig if the application has closed a pool that has lent connections to
	// reserve: its Close waits for them.
	orphaned() error
	// spare returns the number of connections that may be reserved besides that of the heartbeats.
	// early tells to reserve the first one before it is needed: later the application's pool may
	// have none left.
	spare() (most int, early bool)
}

// opened is a transaction that has begun. A call of commit or rollback ends it, and returns its
// connection to the pool.
type opened interface {
	runner
	// commit runs statements and commits. After an error the transaction is rolled back.
	commit(ctx context.Context, s ...statement) error
	rollback(ctx context.Context)
}

type connection interface {
	exec(ctx context.Context, s statement) error
	// transact is that of database.
	transact(ctx context.Context, s ...statement) error
	close() error // for good, also if the connection came from a pool
	// listenable returns the underlying connection of pgx; nil: there is none, or it is hidden.
	listenable() *pgx.Conn
}

// readOnly reports whether a connection's server, or its session, accepts no writes.
func readOnly(ctx context.Context, conn connection) (yes bool) {
	var setting string
	err := conn.exec(ctx, statement{sql: "SHOW transaction_read_only"}.into(&setting, func() { yes = setting == "on" }))
	return yes && err == nil
}

// statement is a query of package postgresdb, its arguments, and a function for each returned row
// (nil: rows are ignored). Generated code supplies the text, the parameters and the row, but does
// not run the query: several statements travel in one batch.
type statement struct {
	sql  string
	args []any
	row  func(row scanner) error
	acts bool // it must change a row
}

type scanner interface{ Scan(dest ...any) error }

// query joins a generated query with its generated parameters: a struct of them, or the single one.
//
// Texts that are not ASCII are sent as hexadecimal digits. The server reads the bytes of a
// parameter in client_encoding, and in another encoding a name would be another lock.
func query(sql string, params any) statement {
	s := statement{sql: sql, acts: transaction.MustAct(sql)}
	if v := reflect.ValueOf(params); v.Kind() == reflect.Struct {
		s.args = make([]any, v.NumField())
		for i := range s.args {
			s.args[i] = v.Field(i).Interface()
		}
	} else {
		s.args = []any{params}
	}
	if slices.ContainsFunc(s.args, beyondASCII) {
		var spelled bool
		if s.sql, spelled = postgresdb.Digits[sql]; !spelled { // the server would take an empty statement for done
			panic("a statement that has no texts in digits: " + sql)
		}
		for i, arg := range s.args {
			if text, is := arg.(string); is {
				s.args[i] = transaction.Hex(text)
			}
		}
	}
	return s
}

func beyondASCII(arg any) bool {
	text, is := arg.(string)
	return is && strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// into scans each row into a generated row, or the single column, and then calls seen.
func (s statement) into(row any, seen func()) statement {
	v := reflect.ValueOf(row).Elem()
	dest := []any{row}
	if v.Kind() == reflect.Struct {
		dest = make([]any, v.NumField())
		for i := range dest {
			dest[i] = v.Field(i).Addr().Interface()
		}
	}
	s.row = func(row scanner) error {
		if err := row.Scan(dest...); err != nil {
			return err
		}
		seen()
		return nil
	}
	return s
}

// found scans a row and records that there was one.
func (s statement) found(row any, found *bool) statement {
	return s.into(row, func() { *found = true })
}

// inTurn is into for a statement that waits for the row of a name. It fails if others had that row
// locked for all of the time: row, a struct, has a field Busy.
func (s statement) inTurn(row any, seen func()) statement {
	busy := reflect.ValueOf(row).Elem().FieldByName("Busy")
	s = s.into(row, seen)
	scan := s.row
	s.row = func(from scanner) error {
		if err := scan(from); err != nil || !busy.Bool() {
			return err
		}
		return errOccupied
	}
	return s
}

// errOccupied has the SQLSTATE that the server would have ended the wait with.
const errOccupied occupied = "another transaction has locked the row of the name"

type occupied string

func (o occupied) Error() string { return string(o) }

func (occupied) SQLState() string { return pgserver.LockNotAvailable }

// list encodes a parameter with many values as a JSON array, which every driver can send.
func list[T any](values []T) string {
	text, _ := json.Marshal(append([]T{}, values...)) // nil would be null; strings and numbers cannot fail
	return string(text)
}

// upkeep is a reserved connection: that of a session's heartbeats, or one of the side pool.
type upkeep struct {
	conn *sharedConn
	of   *engine
}

func (e *engine) Upkeep(ctx context.Context, _ string) (driver.Upkeep, error) {
	conn, err := e.db.reserve(ctx, e.appName())
	if err != nil {
		// the pool may have no connection left; or it is closed, and its Close waits for these
		e.side.Drop()
		return nil, pgserver.Interpret(err)
	}
	if _, early := e.db.spare(); early {
		e.side.Warm()
	}
	return e.keep(conn, connpool.Heartbeats), nil
}

// keep records a reserved connection as one of the application's pool, unless it is beside that.
func (e *engine) keep(conn connection, use connpool.Use) upkeep {
	u := upkeep{newSharedConn(conn), e}
	connpool.Keep(e.db.source(), u.conn, use)
	return u
}

func (u upkeep) Close() error {
	defer connpool.Leave(u.of.db.source(), u.conn)
	return u.conn.close()
}
