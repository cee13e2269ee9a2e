package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

// store is the database of a run.
type store struct{ database.Database }

func (d store) accounts() accounts {
	return accounts{d.SQL, d.Source}
}

// migrate makes dblock's tables if they are missing.
func (d store) migrate(ctx context.Context) error { return migrate.Up(ctx, d.SQL, d.Engine) }

// onlyRun keeps a second run of this program out of the database, since both would use the same
// table. It uses a lock: after a killed run, the lock is free at once on the same host, and
// elsewhere once the TTL has passed.
func (d store) onlyRun(ctx context.Context, o options) (release func(), err error) {
	log := slog.New(slog.DiscardHandler)
	if o.verbose {
		log = slog.Default()
	}
	client, err := dblock.New(d.EngineOverSQL(), dblock.WithTTL(o.ttl), dblock.WithLogger(log))
	if err != nil {
		return nil, err
	}
	release = func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		_ = client.Close(ctx) // locks that it cannot release now are free after the TTL
	}
	if _, err := client.TryLock(ctx, tableName+"/run"); err != nil {
		release()
		if errors.Is(err, dblock.ErrNotAcquired) {
			return nil, fmt.Errorf("another run uses this database, or was killed a moment ago: %w", err)
		}
		return nil, err
	}
	return release, nil
}
