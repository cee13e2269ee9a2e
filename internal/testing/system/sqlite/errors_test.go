package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

func TestMissingTablesAreErrSchema(t *testing.T) {
	f := open(t, newFile(t, "wal"), "")
	every := func(when string, want error) {
		t.Helper()
		ctx := t.Context()
		up, err := f.Upkeep(ctx, "s")
		require.NoError(t, err)
		for name, call := range map[string]func() error{
			"OpenSession": func() error { return f.OpenSession(ctx, driver.Session{ID: "s", TTL: time.Hour}) },
			"EndSession":  func() error { return f.EndSession(ctx, "s", false) },
			"Take":        func() error { _, _, err := drivertest.Take(ctx, f, request("n", "s")); return err },
			"Join":        func() error { _, _, err := drivertest.Join(ctx, f, request("n", "s")); return err },
			"Look":        func() error { _, err := f.Read(ctx, "s", []string{"n"}, 0); return err },
			"Heartbeat":   func() error { _, err := up.Heartbeat(ctx, "s", time.Hour); return err },
			"Expired":     func() error { _, err := f.Expired(ctx, 1); return err },
			"Orphans":     func() error { _, err := f.Orphans(ctx, 1); return err },
			"Purge":       func() error { _, _, err := f.Purge(ctx, time.Hour, "", 1); return err },
			"LockTx": func() error {
				tx := f.begin()
				err := steps["LockTx"](ctx, f, tx, protocol.Held{})
				f.usable(tx)
				return err
			},
		} {
			assert.ErrorIs(t, call(), want, name, when)
		}
	}
	version := func(want int) {
		t.Helper()
		if schema, err := f.Schema(t.Context()); err != nil || schema.Version != want {
			t.Fatalf("%+v, %v, want version %d", schema, err, want)
		}
	}
	version(0)
	every("before the migrations", driver.ErrSchema)
	require.NoError(t, migrate.Up(t.Context(), f.pool, migrate.SQLite))
	version(driver.SchemaVersion)
	f.take("n", f.session())
	f.exec("ALTER TABLE dblock_locks RENAME COLUMN metadata TO grasps")
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); err == nil || errors.Is(err, driver.ErrSchema) {
		t.Errorf("the right version with a column missing: %v", err)
	}
	f.exec("UPDATE dblock_schema SET version = ?", driver.SchemaVersion+1)
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); err == nil || errors.Is(err, driver.ErrSchema) {
		t.Errorf("a later version that this build can use, with a column missing: %v", err)
	}
	f.exec("UPDATE dblock_schema SET usable_from = version")
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); !errors.Is(err, driver.ErrSchema) {
		t.Errorf("a later version that this build cannot use: %v", err)
	}
	version(driver.SchemaVersion + 1)
	f.exec("DROP TABLE dblock_locks")
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); !errors.Is(err, driver.ErrSchema) {
		t.Errorf("a table dropped: %v", err)
	}
}

func TestADatabaseThatCannotServeIsUnavailable(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "none", "locks.db"), "")
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("no such folder: %v", err)
	}
	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, []byte("This is no database, but some text that is long enough to be read "+
		"as the header of one, and then some."), 0o600))
	f = open(t, path, "")
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("no database: %v", err)
	}
	f = newFixture(t)
	f.pool.Close()
	if _, _, err := drivertest.Take(t.Context(), f, request("n", "s")); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a closed pool: %v", err)
	}
}
