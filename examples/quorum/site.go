package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// closeTimeout bounds the Close of a client with a database that may be gone.
const closeTimeout = 2 * time.Second

// site is a place with a database, which may be gone for a while.
type site struct {
	dsn    string
	gone   atomic.Bool
	db     *sql.DB
	client *dblock.Client[*sql.Tx]
}

func open(ctx context.Context, folder, name string, ttl time.Duration) (_ *site, err error) {
	s := &site{dsn: "file:" + filepath.ToSlash(filepath.Join(folder, name+".db")) + "?_pragma=journal_mode(WAL)"}
	s.db = sql.OpenDB(s)
	s.db.SetMaxIdleConns(-1) // each statement connects, and so notices that the place is gone
	defer func() {
		if err != nil {
			_ = s.db.Close()
		}
	}()
	if err := migrate.Up(ctx, s.db, migrate.SQLite); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.client, err = dblock.New(sqlite.New(s.db), dblock.WithTTL(ttl), dblock.WithLogger(slog.New(slog.DiscardHandler)))
	return s, err
}

func (s *site) fail()   { s.gone.Store(true) }
func (s *site) repair() { s.gone.Store(false) }

func (s *site) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.repair() // so that the client can close regularly
	_ = s.client.Close(ctx)
	_ = s.db.Close()
}

// Connect makes a site a driver.Connector: that of SQLite, while the site is there.
func (s *site) Connect(context.Context) (driver.Conn, error) {
	if s.gone.Load() {
		return nil, errors.New("the place does not answer")
	}
	return s.Driver().Open(s.dsn)
}

// Driver is that of SQLite.
func (s *site) Driver() driver.Driver {
	db, err := sql.Open("sqlite", "")
	if err != nil {
		panic(err) // it is imported above
	}
	defer db.Close()
	return db.Driver()
}
