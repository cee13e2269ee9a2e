package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"
)

// run applies one version. Goose uses it both as the locker, which goose calls first and last on
// the one connection of the run, and as the store of the versions. So run knows whether it is
// complete: the record of the version is the last write of goose.
type run struct {
	database.Store
	dialect  dialect
	recorded bool
}

// SessionLock begins the run, or returns errLocked at once.
func (r *run) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return r.dialect.begin(ctx, conn)
}

// SessionUnlock commits a complete run and rolls back any other. A COMMIT of half a migration would
// succeed: when the context ends between two statements, the transaction is still usable. Goose
// calls SessionUnlock with a context that does not end.
func (r *run) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return r.dialect.end(ctx, conn, r.recorded)
}

// TableExists makes a missing version table, with its version 0. Goose calls it under the lock.
// Goose would make the table itself, but after an error it tries three times more, a second apart,
// in a transaction that PostgreSQL has aborted, and returns only that error. A MySQL run that was
// interrupted between the table and its version 0 leaves a table that goose takes for a broken one.
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

// GetMigration leaves out the time of the migration: goose's own version reads it into a time.Time,
// which MySQL's driver refuses without parseTime.
func (r *run) GetMigration(
	ctx context.Context, db database.DBTxConn, version int64,
) (*database.GetMigrationResult, error) {
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
