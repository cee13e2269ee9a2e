// Package migrate tests migrations on real databases, cut at any statement.
package migrate

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// childVariable makes the test binary a process that migrates and ends, or one that holds the lock
// until its standard input ends.
const childVariable = "DBLOCK_MIGRATE_TEST_CHILD"

func TestMain(m *testing.M) {
	if engine := os.Getenv(childVariable); engine != "" {
		if err := child(migrate.Engine(engine), os.Getenv("DBLOCK_MIGRATE_TEST_DSN")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(dbtest.Run(m))
}

// child starts when its standard input ends, so that all of them start together.
func child(engine migrate.Engine, dsn string) error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		return fmt.Errorf("something on the standard input")
	}
	driver := map[migrate.Engine]string{
		migrate.Postgres: "pgx", migrate.MySQL: "mysql", migrate.SQLite: "sqlite",
	}[engine]
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // the smallest possible pool must be enough
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return migrate.Up(ctx, db, engine, migrate.Locks, migrate.Fences, migrate.Versions)
}

// processes runs n children at once and returns the output of each.
func processes(t *testing.T, n int, db dbtest.Database, dsn string) {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	var done sync.WaitGroup
	for range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childVariable+"="+string(db.Engine), "DBLOCK_MIGRATE_TEST_DSN="+dsn)
		cmd.Stdin = read
		done.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	_ = write.Close() // starts all of them
	done.Wait()
	_ = read.Close()
}
