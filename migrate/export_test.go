package migrate

import (
	"context"
	"database/sql"
	"io/fs"
)

// UpWith is Up of a build with other files.
func UpWith(ctx context.Context, db *sql.DB, engine Engine, files fs.FS) error {
	m, err := withFiles(db, engine, files)
	if err != nil {
		return err
	}
	return m.up(ctx)
}

// DownToWith is DownTo of a build with other files.
func DownToWith(ctx context.Context, db *sql.DB, engine Engine, files fs.FS, version int64) error {
	m, err := withFiles(db, engine, files)
	if err != nil {
		return err
	}
	return m.down(ctx, version)
}

func withFiles(db *sql.DB, engine Engine, files fs.FS) (*migrator, error) {
	ms, err := migratorsOf(db, engine, nil)
	if err != nil {
		return nil, err
	}
	ms[0].files = files
	return ms[0], nil
}
