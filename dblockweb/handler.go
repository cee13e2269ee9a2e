package dblockweb

import (
	"embed"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/jobs"
)

// mostStreams bounds the viewers that a handler updates at a time.
const mostStreams = 64

// Access is the set of rights of one request. The zero value: none.
type Access struct {
	Look bool   // see the pages
	Act  bool   // ask holders for a lock, and revoke locks
	By   string // the acting person, before the reason in the history; "": no name
}

// Option configures a Handler.
type Option func(*handler)

// Authorize sets the function that decides the rights of a request. It is called once for each
// request, and for a stream also before each update, with the request that opened the stream, by
// several goroutines at once. Default: everyone may look, and none may act.
func Authorize(access func(r *http.Request) Access) Option {
	return func(h *handler) {
		if access != nil {
			h.access = access
		}
	}
}

// Handler returns the page of a client's database, to be mounted at a path that ends with a slash.
// The page of a lock uses Watch, for which the client opens a session as it does for a lock. The
// handler starts nothing that outlives ServeHTTP. An Ask or a Break continues there for up to 15
// seconds after its browser has left.
func Handler[TX any](client *dblock.Client[TX], options ...Option) http.Handler {
	return HandlerOf(database{inspect.New(client), jobs.New(client), client}, options...)
}

// HandlerOf is Handler with another source of data, such as one that hides names.
func HandlerOf(of Source, options ...Option) http.Handler {
	h := &handler{
		of: of, access: func(*http.Request) Access { return Access{Look: true} },
		streams: make(chan struct{}, mostStreams), pages: pages(),
	}
	for _, o := range options {
		if o != nil {
			o(h)
		}
	}
	return h
}

type handler struct {
	of      Source
	access  func(r *http.Request) Access
	own     http.CrossOriginProtection
	streams chan struct{} // full when the most streams are open
	pages   map[string]*page
}

//go:embed static
var static embed.FS

// files are the types of the files in static.
var files = map[string]string{
	"style.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
}

// policy limits a browser on the page to loading the page's own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for key, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cache-Control":                "no-store",
		"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Vary": "Accept",
	} {
		w.Header().Set(key, value)
	}
	if err := h.own.Check(r); err != nil || foreign(r) {
		http.Error(w, "This request comes from another site. Open the page, and do it there.", http.StatusForbidden)
		return
	}
	access := h.access(r)
	if !access.Look {
		http.Error(w, "You may not see this page.", http.StatusForbidden)
		return
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if to := withSlash(r); to != "" {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	if kind, is := files[name]; is {
		text, _ := static.ReadFile("static/" + name)
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(text)
		return
	}
	p := h.pages[name]
	if p == nil || p.acts && !access.Act {
		http.Error(w, "There is no such page.", http.StatusNotFound)
		return
	}
	switch q := (query{of: h.of, access: access}); {
	case r.Method == http.MethodPost && p.post != nil:
		h.act(w, r, p, q)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This page is for looking.", http.StatusMethodNotAllowed)
	case p.every > 0 && strings.Contains(r.Header.Get("Accept"), "text/event-stream"):
		q.values = r.URL.Query()
		h.stream(w, r, p, q)
	default:
		q.values = r.URL.Query()
		h.show(w, r, p, q)
	}
}

// withSlash returns the redirect for a request that left out the slash at the end of the page's
// path: relative links would lead astray. "": the slash is not missing, or the path only looks so.
func withSlash(r *http.Request) string {
	// as the browser sent it: StripPrefix empties URL.Path
	at, _, _ := strings.Cut(r.RequestURI, "?")
	if r.URL.Path != "" || r.Method != http.MethodGet && r.Method != http.MethodHead ||
		!strings.HasPrefix(at, "/") || strings.HasSuffix(at, "/") {
		return ""
	}
	to := "./" + path.Base(at) + "/"
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	return to
}

// foreign reports whether another site's page sent the request, except for a link that a person
// follows. Other ports and subdomains are other sites here, since anyone may control them.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
	}
	return false
}

// query has the parameters of a request for a page.
type query struct {
	of     Source
	access Access
	values url.Values
}

func (q query) get(key string) string { return q.values.Get(key) }
