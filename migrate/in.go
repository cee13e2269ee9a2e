package migrate

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/dblock-go/dblock/internal/tables"
)

// In is the place of the locks' tables that postgres.Schema or mysql.Database finds: a schema of
// PostgreSQL, which Up makes where it is missing, or a database of MySQL or MariaDB, which must
// exist. Their history is beside them. The methods of In are the functions of this package for that
// place, and take no other set: fences and versions are found by the connection alone. The place
// where the pool's connections look by themselves stays the same.
//
//	err := migrate.In("locks").Up(ctx, db, migrate.Postgres)
type In string

// Up is the function Up in this place.
func (in In) Up(ctx context.Context, db *sql.DB, engine string) error {
	ms, err := in.migrators(db, engine, nil)
	return forEach(ms, err, func(m *migrator) error { return m.up(ctx) })
}

// Down is the function Down in this place. On PostgreSQL the schema stays.
func (in In) Down(ctx context.Context, db *sql.DB, engine string) error {
	ms, err := in.migrators(db, engine, nil)
	return forEach(ms, err, func(m *migrator) error { return m.down(ctx, 0) })
}

// Status is the function Status in this place.
func (in In) Status(ctx context.Context, db *sql.DB, engine string) ([]Migration, error) {
	return in.status(ctx, db, engine, nil)
}

func forEach(ms []*migrator, err error, do func(m *migrator) error) error {
	for _, m := range ms {
		if err = do(m); err != nil {
			return err
		}
	}
	return err
}

// place returns the place of an engine's tables; nil: where the connection looks.
func (in In) place(engine string) (*tables.In, error) {
	switch {
	case in == "":
		return nil, nil
	case engine == SQLite:
		return nil, fmt.Errorf("dblock: migrate: In(%q): SQLite has no schemas", string(in))
	}
	place, err := tables.New(string(in))
	if err != nil {
		return nil, fmt.Errorf("dblock: migrate: In: %w", err)
	}
	return place, nil
}

// placedFS has migrations with a place in their statements.
type placedFS struct {
	fs.FS
	place func(text string) string
}

// Open opens a file with the place in its text.
func (f placedFS) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".sql") {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return placedFile{file, strings.NewReader(f.place(string(text)))}, nil
}

type placedFile struct {
	fs.File
	text io.Reader
}

func (f placedFile) Read(p []byte) (int, error) { return f.text.Read(p) }
