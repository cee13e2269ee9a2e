package gocronlock_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/sqlite"
)

// patience is how long a test waits for what must happen.
const patience = 40 * time.Second

// job is the name of the job of all tests.
const job = "report"

func TestMain(m *testing.M) {
	if os.Getenv(childKind) != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}

// file is the name of a database file that has dblock's tables.
func file(t testing.TB) string {
	name := filepath.Join(t.TempDir(), "dblock.db")
	require.NoError(t, migrate.Up(t.Context(), open(t, name), migrate.SQLite))
	return name
}

func open(t testing.TB, file string) *sql.DB {
	db, err := pool(file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func pool(file string) (*sql.DB, error) {
	return sql.Open("sqlite",
		"file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
}

func client(t testing.TB, file string) *dblock.Client[*sql.Tx] {
	c, err := dblock.New(sqlite.New(open(t, file)), dblock.WithTTL(10*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}

// scheduler is one that is shut down with the test.
func scheduler(t testing.TB, option gocron.SchedulerOption) gocron.Scheduler {
	s, err := gocron.NewScheduler(option)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Shutdown()) })
	return s
}

// now runs a function once, at once, as the job.
func now(t testing.TB, s gocron.Scheduler, function any, listeners ...gocron.EventListener) {
	_, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(function),
		gocron.WithName(job), gocron.WithEventListeners(listeners...))
	require.NoError(t, err)
	s.Start()
}

// receive waits for what must come.
func receive[T any](t testing.TB, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return value
}

// until waits for what must become true.
func until(t testing.TB, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); {
		if time.Now().After(end) {
			t.Fatal("it did not become true")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
