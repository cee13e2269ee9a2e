package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	return l
}

// post asks for an invoice, and sends the status of the answer.
func post(l net.Listener, invoice string) <-chan int {
	code := make(chan int, 1)
	go func() {
		answer, err := http.Post(fmt.Sprintf("http://%s/invoices/%s", l.Addr(), invoice), "", nil)
		if err != nil {
			code <- 0
			return
		}
		defer answer.Body.Close()
		code <- answer.StatusCode
	}()
	return code
}

// A request that is under way when the server is told to end has its lock until it is answered.
func TestRequestsEndWithTheirLocksBeforeTheServerDoes(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		dsn := db.DSN
		if db.Kind == dbtest.KindSQLite {
			dsn = ""
		}
		begun, finish := make(chan bool), make(chan bool)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l, ended := listen(t), make(chan error, 1)
		go func() {
			ended <- run(ctx, dsn, l, func(ctx context.Context, _ string, lock *dblock.Lock) error {
				begun <- true
				<-finish
				return errors.Join(ctx.Err(), lock.Context().Err())
			})
		}()
		first := post(l, "1")
		<-begun
		assert.Equal(t, <-post(l, "1"), http.StatusLocked, "a second request is answered with")
		stop()
		select {
		case err := <-ended:
			t.Fatalf("it ends before the request: %v", err)
		case code := <-first:
			t.Fatalf("the request is answered with %d", code)
		default:
		}
		close(finish)
		assert.Equal(t, <-first, http.StatusOK, "the request is answered with")
		assert.NoError(t, <-ended)
	})
}

func TestTheStatusTellsWhatWentWrong(t *testing.T) {
	f := dblocktest.New[*sql.Tx](t)
	ctx, stop := context.WithCancel(t.Context())
	l, ended := listen(t), make(chan error, 1)
	defer func() {
		stop()
		assert.NoError(t, <-ended)
	}()
	go func() {
		ended <- serve(ctx, l, f.Client, handler(f.Client, func(ctx context.Context, invoice string,
			lock *dblock.Lock) error {
			switch invoice {
			case "lost":
				f.Lose(t, lock)
				<-ctx.Done()
				return context.Cause(ctx)
			case "wrong":
				return errors.New("it is wrong")
			}
			return nil
		}))
	}()
	release := f.Hold(t, dblock.Name("invoice", "held"))
	for invoice, want := range map[string]int{
		"good": http.StatusOK, "held": http.StatusLocked, "lost": http.StatusConflict,
		"wrong": http.StatusInternalServerError,
	} {
		assert.Equal(t, <-post(l, invoice), want, invoice)
	}
	release()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(gone, http.MethodPost, "/invoices/good", nil)
	w := httptest.NewRecorder()
	handler(f.Client, nil).ServeHTTP(w, r)
	assert.Equal(t, w.Code, clientClosedRequest, "a client that has gone")
	f.Down()
	assert.Equal(t, <-post(l, "good"), http.StatusServiceUnavailable, "without a database")
	f.Up()
}
