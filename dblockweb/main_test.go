package dblockweb_test

import (
	"bufio"
	"context"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// tx stands for an application's transactions.
type tx struct{}

// operator may do everything.
func operator(*http.Request) dblockweb.Access {
	return dblockweb.Access{Look: true, Act: true, By: "alice"}
}

// world is a database in memory, and the page of it.
type world struct {
	*testing.T
	*dblocktest.Fake[tx]
	server *httptest.Server
}

func newWorld(t *testing.T, options ...dblockweb.Option) *world {
	t.Helper()
	f := dblocktest.New[tx](t, dblock.WithHost("there"), dblock.WithApp("orders"), dblock.WithEvents())
	return &world{t, f, serve(t, dblockweb.Handler(f.Client, options...))}
}

// serve mounts a page at /admin/locks/.
func serve(t *testing.T, page http.Handler) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/admin/locks/", http.StripPrefix("/admin/locks/", page))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server
}

// answer is what a server says.
type answer struct {
	status int
	body   string
	http.Header
}

// do sends a request to a page. Headers are pairs.
func (w *world) do(method, page string, form url.Values, headers ...string) answer {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.server.URL+"/admin/locks/"+strings.TrimPrefix(page,
		"./"), strings.NewReader(form.Encode()))
	require.NoError(w, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(w, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(w, err)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return answer{response.StatusCode, string(body), response.Header}
}

// get reads a page that is there.
func (w *world) get(page string) string {
	w.Helper()
	a := w.do("GET", page, nil)
	if a.status != http.StatusOK {
		w.Fatalf("GET %s: %d: %s", page, a.status, a.body)
	}
	return a.body
}

func (w *world) lock(name string, options ...dblock.LockOption) *dblock.Lock {
	w.Helper()
	l, err := w.Client.Lock(w.Context(), name, options...)
	require.NoError(w, err)
	return l
}

// waits has somebody wait for a name until the test ends, the nth in the queue.
func (w *world) waits(name string, n int, options ...dblock.LockOption) {
	w.Helper()
	w.waitsUnder(context.Background(), name, n, options...)
}

// waitsUnder has the holder of a lock wait for another name.
func (w *world) waitsUnder(ctx context.Context, name string, n int, options ...dblock.LockOption) {
	w.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	w.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		if l, err := w.Client.Lock(ctx, name, options...); err == nil {
			_ = l.Unlock(context.Background())
		}
	}()
	w.AwaitQueue(w, name, n)
}

func (w *world) contains(text string, all ...string) {
	w.Helper()
	for _, part := range all {
		if !strings.Contains(text, part) {
			w.Errorf("no %q in\n%s", part, text)
		}
	}
}

func (w *world) lacks(text string, all ...string) {
	w.Helper()
	for _, part := range all {
		if strings.Contains(text, part) {
			w.Errorf("%q in\n%s", part, text)
		}
	}
}

var hrefs = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)

// links are where a page leads.
func links(page string) (all []string) {
	for _, m := range hrefs.FindAllStringSubmatch(page, -1) {
		all = append(all, html.UnescapeString(m[1]))
	}
	return all
}

// linkTo is where a page leads that begins so.
func (w *world) linkTo(page, prefix string) string {
	w.Helper()
	for _, l := range links(page) {
		if strings.HasPrefix(l, prefix) {
			return l
		}
	}
	w.Fatalf("no link to %s in\n%s", prefix, page)
	return ""
}

// message is one of a stream.
type message struct {
	event string
	Now   int64
	HTML  string
	Text  string
}

// stream opens the stream of a page, and returns how to read it; false: it has ended.
func (w *world) stream(page string) (next func() (message, bool), end func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", w.server.URL+"/admin/locks/"+page, nil)
	require.NoError(w, err)
	r.Header.Set("Accept", "text/event-stream")
	transport := &http.Transport{}
	response, err := transport.RoundTrip(r)
	require.NoError(w, err)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		w.Fatalf("stream of %s: %d %v", page, response.StatusCode, response.Header)
	}
	end = func() {
		cancel()
		response.Body.Close()
		transport.CloseIdleConnections()
	}
	w.Cleanup(end)
	lines := bufio.NewReader(response.Body)
	return func() (m message, ok bool) {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return m, false
			}
			if event, is := strings.CutPrefix(line, "event: "); is {
				m.event = strings.TrimSpace(event)
			}
			if data, is := strings.CutPrefix(line, "data: "); is {
				assert.NoError(w, json.Unmarshal([]byte(data), &m))
				return m, true
			}
		}
	}, end
}

// until reads a stream until a message is of this kind and has this text.
func (w *world) until(next func() (message, bool), event, text string) {
	w.Helper()
	for {
		m, ok := next()
		if !ok {
			w.Fatalf("the stream ended before %s came with %q", event, text)
		}
		if m.event == event && strings.Contains(m.HTML+m.Text, text) {
			return
		}
	}
}

func readAll(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}
