package dblockweb_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

// everywhere are the pages for looking.
var everywhere = []string{"", "lock?name=n", "sessions", "jobs", "job?name=j", "elections", "events"}

func TestThePageIsReadOnlyUnlessItIsSaidWhoMayAct(t *testing.T) {
	lookers := func(*http.Request) dblockweb.Access { return dblockweb.Access{Look: true} }
	for name, options := range map[string][]dblockweb.Option{
		"by default": nil, "no hook": {dblockweb.Authorize(nil)}, "a hook for looking": {nil,
			dblockweb.Authorize(lookers)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options...)
			held := w.lock("n")
			token := fmt.Sprint(held.Token())
			w.lacks(w.get("lock?name=n"), "break?", "ask?", "<form")
			for _, page := range []string{"break?name=n&token=" + token, "ask?name=n"} {
				if a := w.do("GET", page, nil); a.status != http.StatusNotFound {
					t.Errorf("GET %s: %d", page, a.status)
				}
			}
			for _, page := range []string{"break", "ask", "lock", ""} {
				a := w.do("POST", page, url.Values{"name": {"n"}, "token": {token}, "reason": {"because"}})
				if a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
					t.Errorf("POST %s: %d: %s", page, a.status, a.body)
				}
			}
			assert.NoError(t, context.Cause(held.Context()), "the holder")
			select {
			case reason := <-held.Asked():
				t.Errorf("the holder was asked: %s", reason)
			default:
			}
		})
	}
}

func TestTheApplicationDecidesWhoMayLook(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(func(r *http.Request) dblockweb.Access {
		return dblockweb.Access{Look: r.Header.Get("User") == "bob"}
	}))
	w.lock("secret")
	for _, page := range append(everywhere, "style.css", "nothing") {
		for _, accept := range []string{"text/html", "text/event-stream"} {
			if a := w.do("GET", page, nil, "Accept", accept, "User", "eve"); a.status != http.StatusForbidden ||
				strings.Contains(a.body, "secret") {
				t.Errorf("GET %s: %d: %s", page, a.status, a.body)
			}
		}
	}
	w.contains(w.do("GET", "", nil, "User", "bob").body, "secret")
}

func TestAHookThatReturnsTheZeroAccessAllowsNothing(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(func(*http.Request) dblockweb.Access { return dblockweb.Access{Act: true} }))
	held := w.lock("n")
	a := w.do("POST", "break", url.Values{"name": {"n"}, "token": {fmt.Sprint(held.Token())}, "reason": {"because"}})
	if a.status != http.StatusForbidden || held.Context().Err() != nil {
		t.Errorf("who may act and not look: %d, %v", a.status, context.Cause(held.Context()))
	}
}

func TestEveryAnswerSaysWhatABrowserMayDo(t *testing.T) {
	w := newWorld(t)
	for _, page := range append(everywhere, "style.css", "live.js", "icon.svg", "nothing") {
		a := w.do("GET", page, nil)
		for key, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src " +
				"'self'; img-src 'self' data:; " +
				"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			assert.Equal(t, a.Get(key), value, page, key)
		}
		w.lacks(a.body, "style=\"", "<style", "onclick")
	}
}

// Only a link that a person follows may come from elsewhere.
func TestNothingWorksFromAnotherSite(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(operator))
	held := w.lock("n")
	form := url.Values{"name": {"n"}, "token": {fmt.Sprint(held.Token())}, "reason": {"because"}}
	for name, headers := range map[string][]string{
		"a form of another site": {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"},
		"a form of another port": {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"},
		"an old browser":        {"Origin", "http://evil.example"},
		"no origin to speak of": {"Origin", "null"},
	} {
		if a := w.do("POST", "break", form, headers...); a.status != http.StatusForbidden {
			t.Errorf("%s: %d: %s", name, a.status, a.body)
		}
	}
	require.NoError(t, context.Cause(held.Context()), "the holder")
	for name, headers := range map[string][]string{
		"fetch":       {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"},
		"from a port": {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"},
		"an image":    {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"},
		"a frame":     {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
		"a stream": {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty",
			"Accept", "text/event-stream"},
		"a linked script": {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"},
	} {
		if a := w.do("GET", "", nil, headers...); a.status != http.StatusForbidden {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	for name, headers := range map[string][]string{
		"a link": {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"},
		"its own script":    {"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"},
		"typed by a person": {"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
	} {
		if a := w.do("GET", "", nil, headers...); a.status != http.StatusOK {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	a := w.do("POST", "break", form, "Sec-Fetch-Site", "same-origin", "Origin", w.server.URL)
	if a.status != http.StatusOK {
		t.Errorf("its own form: %d: %s", a.status, a.body)
	}
	<-held.Context().Done() // otherwise closing its client would find out
}

func TestThePageStandsBelowAnyPath(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(operator))
	w.lock("orders/1")
	w.waits("orders/1", 1)
	if ran, err := jobs.New(w.Client).OncePer(t.Context(), "report/daily", time.Hour,
		func(context.Context, *dblock.Lock, time.Time) error { return nil }); !ran || err != nil {
		t.Fatal(ran, err)
	}
	page := dblockweb.Handler(w.Client, dblockweb.Authorize(operator))
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.Handle("/admin/locks/", http.StripPrefix("/admin/locks", page))
	mux.Handle("/stripped/", http.StripPrefix("/stripped/", page))
	mux.Handle("/as/it/is/", page)
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, root := range []string{"/", "/admin/locks/", "/stripped/", "/as/it/is/"} {
		base, err := url.Parse(server.URL + root)
		require.NoError(t, err)
		seen, todo := map[string]bool{}, []*url.URL{base}
		for len(todo) > 0 {
			at := todo[0]
			todo = todo[1:]
			if seen[at.String()] {
				continue
			}
			seen[at.String()] = true
			response, err := http.Get(at.String())
			require.NoError(t, err)
			body := readAll(t, response)
			assert.Equal(t, response.StatusCode, http.StatusOK, "below", root, at)
			for _, link := range links(body) {
				to, err := at.Parse(link)
				require.NoError(t, err)
				if to.Fragment = ""; !strings.HasPrefix(to.Path, root) || to.Host != base.Host {
					t.Errorf("below %s: a link to %s", root, to)
				}
				if link != "ask" && link != "break" && link != "job" { // forms, without a name
					todo = append(todo, to)
				}
			}
		}
		for _, needed := range []string{"style.css", "live.js", "lock?name=orders%2f1", "job?name=report%2fdaily",
			"lock?name=once%2freport%2fdaily", "ask?name=orders%2f1"} {
			if !seen[server.URL+root+needed] {
				t.Errorf("below %s: no way to %s: %v", root, needed, seen)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAPathWithoutItsSlashLeadsToThePage(t *testing.T) {
	page := http.StripPrefix("/admin/locks", dblockweb.Handler(newWorld(t).Client))
	for _, method := range []string{"GET", "HEAD"} {
		r := httptest.NewRequest(method, "/admin/locks?x=1&y=%2f", nil)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		to, err := r.URL.Parse(w.Header().Get("Location"))
		if w.Code != http.StatusTemporaryRedirect || err != nil || to.String() != "/admin/locks/?x=1&y=%2f" {
			t.Errorf("%s: %d %v %v", method, w.Code, to, err)
		}
	}
	post := httptest.NewRequest("POST", "/admin/locks", nil)
	whole := httptest.NewRequest("GET", "/admin/locks", nil)
	whole.RequestURI = "http://example.com"
	made := httptest.NewRequest("GET", "/admin/locks", nil)
	made.RequestURI = "" // as in a test, or of a router that makes requests
	for r, status := range map[*http.Request]int{post: http.StatusMethodNotAllowed, whole: http.StatusOK,
		made: http.StatusOK} {
		w := httptest.NewRecorder()
		if page.ServeHTTP(w, r); w.Code != status || w.Header().Get("Location") != "" {
			t.Errorf("%s %q: %d %v", r.Method, r.RequestURI, w.Code, w.Header())
		}
	}
}

// hostile are names that others may have written into the tables.
var hostile = []string{
	"<script>alert(1)</script>", "../", "../../etc/passwd", "%2f", "%", "a\nb", "a\r\ndata: x", "?name=x&token=1#y",
	`" onmouseover="alert(1)`, "'", "`",
	"javascript:alert(1)", "//evil.example/", "\\\\evil", "+ +", " ", "\u202eevil", "ünïcödé", "{{.}}", "</time>",
	strings.Repeat("é", 127) + "x",
}

// named is a Source of names that no client takes.
type named struct {
	dblockweb.Source
	names []string
}

func (n named) List(_ context.Context, f inspect.Filter) iter.Seq2[inspect.Info, error] {
	return func(yield func(inspect.Info, error) bool) {
		for _, name := range n.names {
			if f.Contended || !yield(n.info(name), nil) {
				return
			}
		}
	}
}

func (n named) info(name string) inspect.Info {
	return inspect.Info{Name: name, Token: 7, Holders: []inspect.Participant{{Host: name, Thread: name, App: name,
		Session: name, Token: 7, Metadata: map[string]string{name: name}, Asked: name}}}
}

func (n named) Lock(_ context.Context, name string) (inspect.Info, error) { return n.info(name), nil }

func (n named) Why(_ context.Context, name string) ([]inspect.Info, error) {
	return []inspect.Info{n.info(name)}, nil
}

func (n named) Events(context.Context, inspect.EventFilter) iter.Seq2[inspect.Event, error] {
	return func(yield func(inspect.Event, error) bool) {
		for _, name := range n.names {
			if !yield(inspect.Event{ID: 1, Name: name, Kind: "elected", Detail: name, Host: name, Token: 7}, nil) {
				return
			}
		}
	}
}

func TestAnyNameIsShownAndFound(t *testing.T) {
	for _, name := range append(hostile, "\xff\xfe<b>", "a\x00b") {
		t.Run(fmt.Sprintf("%.20q", name), func(t *testing.T) {
			w := &world{T: t, server: serve(t, dblockweb.HandlerOf(named{names: []string{name}},
				dblockweb.Authorize(operator)))}
			for _, page := range []string{"", "events", "elections"} {
				found := w.linkTo(w.get(page), "lock?")
				to, err := url.Parse(found)
				if err != nil || to.Query().Get("name") != name {
					t.Fatalf("%s leads to %q: %v", page, found, err)
				}
				at := w.get(found)
				w.lacks(at, "<script>", "<b>", " onmouseover=\"")
				to, err = url.Parse(w.linkTo(at, "break?"))
				if err != nil || to.Query().Get("name") != name || to.Query().Get("token") != "7" {
					t.Errorf("it leads to %v: %v", to, err)
				}
				w.lacks(w.get("break?"+to.RawQuery), "<script>", "<b>", " onmouseover=\"")
			}
		})
	}
}

func TestANameThatIsNoneIsRefused(t *testing.T) {
	w := newWorld(t)
	for _, page := range []string{"lock", "lock?name=", "lock?name=%ff", "lock?name=" + strings.Repeat("n", 256), "job",
		"events?before=x", "?older=soon"} {
		if a := w.do("GET", page, nil); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d", page, a.status)
		}
	}
}

func TestOnlyPostChangesAnything(t *testing.T) {
	w := newWorld(t, dblockweb.Authorize(operator))
	held := w.lock("n")
	query := url.Values{"name": {"n"}, "token": {fmt.Sprint(held.Token())}, "reason": {"because"}}
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		for _, page := range []string{"break", "ask"} {
			w.do(method, page+"?"+query.Encode(), query)
		}
	}
	// The query of the address is no form.
	if a := w.do("POST", "break?"+query.Encode(), url.Values{}); a.status != http.StatusBadRequest {
		t.Errorf("%d", a.status)
	}
	assert.NoError(t, context.Cause(held.Context()), "the holder")
}

// chained is a Source of one chain of waiting.
type chained struct {
	named
	infos []inspect.Info
}

func (c chained) Why(context.Context, string) ([]inspect.Info, error) { return c.infos, nil }

func handlerOf(i dblockweb.Source) http.Handler { return dblockweb.HandlerOf(i) }

// silent is a database that does not answer.
type silent struct{ dblockweb.Source }

func (silent) List(ctx context.Context, _ inspect.Filter) iter.Seq2[inspect.Info, error] {
	return func(yield func(inspect.Info, error) bool) {
		<-ctx.Done()
		yield(inspect.Info{}, fmt.Errorf("connecting:\n\tfirst: %w", ctx.Err()))
	}
}

func TestAPageSaysSoonThatTheDatabaseDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, w := time.Now(), httptest.NewRecorder()
		dblockweb.HandlerOf(silent{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		if took := time.Since(began); took != 3*time.Second || w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d after %v", w.Code, took)
		}
		(&world{T: t}).contains(w.Body.String(),
			"No answer within 3s: a failover may be in progress. connecting: first: context deadline exceeded")
	})
}
