package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"
)

// run is one version of ours on its way into a database, seen by goose as two things: the locker,
// which is called around everything on the connection that everything runs on, and the store of the
// versions. It knows both, and so whether the run is whole: the record of the version is the last
// thing that goose writes.
type run struct {
	database.Store
	dialect  dialect
	recorded bool
}

// SessionLock begins the run, or says errLocked at once.
func (r *run) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return r.dialect.begin(ctx, conn)
}

// SessionUnlock keeps what is whole and drops what is not. A COMMIT of half a migration would be
// possible: a context that ended between two statements leaves a transaction in good order. Goose
// calls it with a context that does not end.
func (r *run) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return r.dialect.end(ctx, conn, r.recorded)
}

// TableExists is asked by goose under the lock, and makes the table where there is none: goose
// would do that itself, and after an error try it three times more, a second apart, in a
// transaction that PostgreSQL has aborted, so that all that is seen in the end is that. A MySQL run
// that was cut between the table and its version 0 left a table that goose takes for a broken one.
func (r *run) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	there, err := r.dialect.tableExists(ctx, db, r.Store)
	if err != nil {
		return false, err
	}
	if !there {
		if err := r.CreateVersionTable(ctx, db); err != nil {
			return false, err
		}
		err = database.ErrVersionNotFound
	} else {
		_, err = r.GetMigration(ctx, db, 0)
	}
	if errors.Is(err, database.ErrVersionNotFound) {
		err = r.Store.Insert(ctx, db, database.InsertRequest{Version: 0})
	}
	return err == nil, err
}

// GetMigration leaves the time of the migration out: goose's own reads it into a time.Time, which
// MySQL's driver refuses without parseTime.
func (r *run) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	rows, err := r.ListMigrations(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.Version == version {
			return &database.GetMigrationResult{IsApplied: row.IsApplied}, nil
		}
	}
	return nil, fmt.Errorf("%w: %d", database.ErrVersionNotFound, version)
}

func (r *run) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	err := r.Store.Insert(ctx, db, req)
	r.recorded = err == nil && req.Version > 0
	return err
}

func (r *run) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	err := r.Store.Delete(ctx, db, version)
	r.recorded = err == nil
	return err
}
