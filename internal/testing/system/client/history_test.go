package client

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/sqlite"
)

// forgetful is an engine that cannot write events for so many calls.
type forgetful struct {
	away  atomic.Int64
	wrote chan struct{}
}

func (f *forgetful) hook(ctx context.Context, c *fakedb.Call) error {
	if c.Method != "Record" {
		return c.Do(ctx)
	}
	if f.away.Add(-1) >= 0 {
		return fakedb.ErrLost
	}
	err := c.Do(ctx)
	select {
	case f.wrote <- struct{}{}:
	default:
	}
	return err
}

// client makes a client that logs to log, and that the test closes.
func (f *forgetful) client(t *testing.T, db *sql.DB, log *journal) sqlClient {
	t.Helper()
	client, err := dblock.New(fakedb.Through(sqlite.New(db), f.hook), dblock.WithEvents(),
		dblock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	require.NoError(t, err)
	return client
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) count(what string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), what)
}

// Broken by a line for each try, ten a second.
func TestAnOutageIsNoFloodOfLinesAboutEvents(t *testing.T) {
	const tries = 6
	db := dbtest.SQLite(t).SQL(t)
	f := &forgetful{wrote: make(chan struct{}, 1)}
	f.away.Store(tries)
	log := &journal{}
	client := f.client(t, db, log)
	began := time.Now()
	require.NoError(t, client.Do(t.Context(), "n", func(context.Context, *dblock.Lock) error { return nil }))
	<-f.wrote
	require.NoError(t, client.Close(t.Context()))
	if n, most := log.count("writing events fails"), 1+int(time.Since(began)/(10*time.Second)); n < 1 || n > most ||
		most >= tries {
		t.Errorf("%d lines of %d failures in %v: want %d\n%s", n, tries, time.Since(began), most, &log.text)
	}
	if n := log.count("writing events works again"); n != 1 {
		t.Errorf("%d lines of the recovery\n%s", n, &log.text)
	}
	var kinds string
	if err := db.QueryRow("SELECT group_concat(kind) FROM dblock_events").Scan(&kinds); err != nil ||
		kinds != "granted,released" {
		t.Errorf("%q, %v", kinds, err)
	}
}

// What is not kept for a database that is away is counted, and the log says how much it is.
func TestEventsThatAreLostAreCounted(t *testing.T) {
	db := dbtest.SQLite(t).SQL(t)
	f := &forgetful{wrote: make(chan struct{}, 1)}
	f.away.Store(1 << 30)
	log := &journal{}
	client := f.client(t, db, log)
	for i := range 3 {
		require.NoError(t, client.Do(t.Context(), fmt.Sprint(i),
			func(context.Context, *dblock.Lock) error { return nil }))
	}
	require.NoError(t, client.Close(t.Context()))
	if log.count("the last events were not written") != 1 || log.count("lost=6") == 0 {
		t.Errorf("it says:\n%s", &log.text)
	}
}
