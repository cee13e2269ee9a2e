package faulttest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/dbtest"
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
		return postgres.New(pool).Backend, pool.Close, nil
	}
	db, err := openSQL(kind, dsn)
	if err != nil {
		return nil, nil, err
	}
	if kind == dbtest.KindSQLite {
		return sqlite.New(db).Backend, func() { _ = db.Close() }, nil
	}
	return dblockmysql.New(db).Backend, func() { _ = db.Close() }, nil
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

// recorder tells which places in queues this client gives up of its own will: in the database, that looks the same as
// a waiter that was passed over.
type recorder struct {
	driver.Backend
	report *reporter

	mu       sync.Mutex // protects sessions
	sessions map[string]bool
}

func (r *recorder) OpenSession(ctx context.Context, s driver.Session) error {
	r.mu.Lock()
	r.sessions[s.ID] = true
	r.mu.Unlock()
	return r.Backend.OpenSession(ctx, s)
}

func (r *recorder) Leave(ctx context.Context, session, name, attempt string) (driver.Handoff, error) {
	r.mu.Lock()
	own := r.sessions[session]
	r.mu.Unlock()
	if own {
		r.report.report(event{What: evLeave, Name: name, Attempt: attempt})
	}
	return r.Backend.Leave(ctx, session, name, attempt)
}
