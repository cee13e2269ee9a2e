package mysql_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/mysql"
)

// What a connection has done whose COMMIT was not answered is not known, and nobody gets it.
func TestAConnectionWhoseCommitWasNotAnsweredIsNotUsedAgain(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		pool := server{s.Through(t, proxy), s.pool}.open(t, nil)
		pool.SetMaxOpenConns(1)
		e := inside.Of(mysql.New(pool)).Backend
		record := func(ctx context.Context) error { return e.Record(ctx, []protocol.Event{{Name: "n", Kind: "test"}}) }
		require.NoError(t, record(t.Context()))
		var before, after int64
		require.NoError(t, pool.QueryRow("SELECT CONNECTION_ID()").Scan(&before))
		committing, goOn := stopAt(t, proxy, "\x03COMMIT", 1) // the command, and not READ COMMITTED
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		recording := start(t, func(context.Context) (bool, error) { return true, record(ctx) })
		soon(t, "the COMMIT", committing)
		cancel()
		is(t, (<-recording).err, context.Canceled) // and does not wait for the answer
		goOn()
		require.NoError(t, pool.QueryRow("SELECT CONNECTION_ID()").Scan(&after))
		if after == before {
			t.Error("the connection went back to the pool")
		}
		if n := s.number(t, "SELECT COUNT(*) FROM dblock_events"); n != 2 {
			t.Errorf("%d events, want 2: the COMMIT arrived", n)
		}
	})
}

// A transaction whose COMMIT was not answered may have been committed: a side pool does not run it
// once more on another connection.
func TestATransactionWhoseCommitWasNotAnsweredIsNotRunTwice(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		proxy := dbtest.NewProxy(t, s.Addr(t))
		a := server{s.Through(t, proxy), s.pool}.attending(t)
		var once sync.Once
		committing := make(chan struct{})
		proxy.Watch(func(request []byte) {
			if bytes.Contains(request, []byte("\x03COMMIT")) {
				once.Do(func() {
					proxy.DropReplies()
					close(committing)
				})
			}
		})
		recording := start(t, func(ctx context.Context) (bool, error) {
			return true, a.Record(ctx, []protocol.Event{{Name: "n", Kind: "test"}})
		})
		soon(t, "the COMMIT", committing)
		events := func() int64 { return s.number(t, "SELECT COUNT(*) FROM dblock_events") }
		dbtest.Eventually(t, "the event", func() bool { return events() == 1 })
		proxy.Cut()
		proxy.Heal()
		is(t, (<-recording).err, driver.ErrUnavailable)
		assert.Equal(t, events(), 1, "events")
	})
}

// A process that is stopped between two statements is, for the server, a connection that says
// nothing.
func TestATransactionThatFallsSilentIsEndedByTheServer(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a := s.actor(t)
		a.take(t, "n")
		e := s.engine(t)
		defer e.Attend("", time.Second)()
		began := time.Now()
		err := mysql.StopBetween(t.Context(), e, "n", func() {
			s.exec(t, "UPDATE dblock_locks SET host = 'another' WHERE name = 'n'") // waits for the row
		})
		is(t, err, driver.ErrUnavailable)
		t.Logf("the row was free after %v", time.Since(began))
		assert.Equal(t, s.number(t, "SELECT COUNT(*) FROM dblock_locks WHERE name = 'n' AND host = 'another'"), 1,
			"the row was not written")
	})
}
