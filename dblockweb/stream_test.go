package dblockweb_test

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestAStreamSendsWhatHasChanged(t *testing.T) {
	w := newWorld(t)
	lock, _ := w.stream("lock?name=n")
	overview, _ := w.stream("")
	w.until(lock, "main", "It has no holder")
	w.until(overview, "main", "No other lock is held")
	held := w.lock("n")
	w.until(lock, "main", "0 waiters")
	w.until(overview, "main", "lock?name=n")
	w.waits("n", 1)
	w.until(lock, "main", "1 waiter")
	w.until(overview, "main", "1 name,")
	require.NoError(t, held.Unlock(t.Context()))
	w.until(overview, "main", "No lock has waiters")
}

func TestAStreamGoesOnWhenTheDatabaseIsBack(t *testing.T) {
	w := newWorld(t)
	w.lock("n")
	next, _ := w.stream("lock?name=n")
	w.until(next, "main", "1 holder")
	w.Down()
	w.until(next, "problem", "dblock")
	a := w.do("GET", "", nil)
	w.contains(a.body, `role="alert">dblock`, "data-live")
	assert.Equal(t, a.status, http.StatusServiceUnavailable)
	w.Up()
	w.until(next, "main", "1 holder")
}

func TestAStreamEndsWhenItsViewerMayNotLookAnyMore(t *testing.T) {
	var may atomic.Bool
	may.Store(true)
	w := newWorld(t,
		dblockweb.Authorize(func(*http.Request) dblockweb.Access { return dblockweb.Access{Look: may.Load()} }))
	next, _ := w.stream("lock?name=n")
	w.until(next, "main", "It has no holder")
	may.Store(false)
	w.lock("n")
	for {
		m, ok := next()
		if !ok {
			break
		}
		w.lacks(m.HTML, "1 holder")
	}
}

func TestStreamsAreBounded(t *testing.T) {
	w := newWorld(t)
	var ends []func()
	for range 64 {
		next, end := w.stream("elections")
		w.until(next, "main", "No election")
		ends = append(ends, end)
	}
	if a := w.do("GET", "elections", nil, "Accept", "text/event-stream"); a.status != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", a.status)
	}
	w.get("elections")
	for _, end := range ends {
		end()
	}
	w.eventually(func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", w.server.URL+"/admin/locks/", nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "text/event-stream")
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		response, err := transport.RoundTrip(r)
		require.NoError(t, err)
		defer response.Body.Close()
		defer cancel()
		return response.StatusCode == http.StatusOK
	})
}

// eventually waits until it is so.
func (w *world) eventually(yes func() bool) {
	w.Helper()
	for end := time.Now().Add(time.Minute); !yes(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatal("it does not become so")
		}
	}
}

// A server's time-outs are for answers that end.
func TestAStreamOutlivesTheTimeoutsOfItsServer(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewUnstartedServer(http.StripPrefix("/admin/locks/", dblockweb.Handler(w.Client)))
	server.Config.ReadTimeout, server.Config.WriteTimeout = time.Second, time.Second
	server.Start()
	t.Cleanup(server.Close)
	w.server = server
	next, _ := w.stream("lock?name=n")
	w.until(next, "main", "It has no holder")
	<-time.After(3 * time.Second) // for what must not happen meanwhile
	w.lock("n")
	w.until(next, "main", "1 holder")
}

// busy is a Source of a lock that changes a thousand times a second.
type busy struct {
	named
	reads, watched *atomic.Int64
}

func (b busy) Why(_ context.Context, name string) ([]inspect.Info, error) {
	info := b.info(name)
	info.Token = b.reads.Add(1)
	return []inspect.Info{info}, nil
}

func (b busy) Watch(ctx context.Context, name string) iter.Seq2[inspect.Info, error] {
	return func(yield func(inspect.Info, error) bool) {
		for ctx.Err() == nil {
			if b.watched.Add(1); !yield(b.info(name), nil) {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestAStreamOfABusyLockReadsTwiceASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "GET", "/lock?name=n", nil)
		r.Header.Set("Accept", "text/event-stream")
		w := httptest.NewRecorder()
		b := busy{named{}, new(atomic.Int64), new(atomic.Int64)}
		handlerOf(b).ServeHTTP(w, r)
		if n := b.reads.Load(); n < 15 || n > 21 {
			t.Errorf("in 10 s it was read %d times", n)
		}
		if n := b.watched.Load(); n < 15 || n > 21 {
			t.Errorf("in 10 s Watch read it %d times", n)
		}
		if n := strings.Count(w.Body.String(), "event: main"); n < 15 {
			t.Errorf("the viewer saw %d changes", n)
		}
	})
}

// plain is a writer that cannot be flushed.
type plain struct{ http.ResponseWriter }

func TestAServerThatCannotStreamSaysSo(t *testing.T) {
	page := dblockweb.Handler(newWorld(t).Client)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept", "text/event-stream")
	w := httptest.NewRecorder()
	page.ServeHTTP(plain{w}, r)
	assert.Equal(t, w.Code, http.StatusNotImplemented)
}
