package dblockweb

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
)

// loadTime bounds the reads for a page: in a failover the page reports that soon.
const loadTime = 3 * time.Second

// page is one of the pages.
type page struct {
	name  string // of its template and in links; links to the overview have none
	load  func(ctx context.Context, q query) (any, error)
	every time.Duration // the interval at which a stream reads it; 0: not live
	watch bool          // a stream also follows the lock of the page
	acts  bool          // only for requests that may act
	post  func(ctx context.Context, q query) (outcome, error)

	text *template.Template
}

func pages() map[string]*page {
	all := []*page{
		{name: "overview", load: loadOverview, every: 2 * time.Second},
		{name: "lock", load: loadLock, every: 2 * time.Second, watch: true},
		{name: "sessions", load: loadSessions, every: 2 * time.Second},
		{name: "jobs", load: loadJobs, every: 5 * time.Second},
		{name: "job", load: loadJob, every: 5 * time.Second},
		{name: "elections", load: loadElections, every: 5 * time.Second},
		{name: "events", load: loadEvents, every: 2 * time.Second},
		{name: "ask", load: loadAsk, every: 2 * time.Second, watch: true, acts: true, post: postAsk},
		{name: "break", load: loadBreak, every: 2 * time.Second, watch: true, acts: true, post: postBreak},
		{name: "done"}, // the answer to a POST
	}
	named := map[string]*page{}
	for _, p := range all {
		p.text = template.Must(template.New(p.name).Funcs(functions).ParseFS(templates, "templates/base.html",
			"templates/parts.html", "templates/"+p.name+".html"))
		named[p.name] = p
	}
	named[""] = named["overview"]
	return named
}

//go:embed templates
var templates embed.FS

// view is the data of a template.
type view struct {
	Page    string
	Live    bool
	Now     time.Time
	Access  Access
	Problem string
	Data    any // nil: it could not be read
}

// badRequest is the error of an invalid request.
type badRequest string

func (b badRequest) Error() string { return string(b) }

// status returns the HTTP status for an error.
func status(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, new(badRequest)), errors.Is(err, dblock.ErrInvalidName),
		errors.Is(err, dblock.ErrInvalidOption):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// show answers with a page.
func (h *handler) show(w http.ResponseWriter, r *http.Request, p *page, q query) {
	if p.load == nil {
		http.NotFound(w, r)
		return
	}
	v, err := p.read(r.Context(), q)
	p.write(w, status(err), v)
}

// read loads a page.
func (p *page) read(ctx context.Context, q query) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	v := view{Page: p.name, Live: p.every > 0, Now: time.Now(), Access: q.access}
	data, err := p.load(ctx, q)
	if err != nil {
		v.Problem = err.Error()
		if ctx.Err() == context.DeadlineExceeded {
			v.Problem = fmt.Sprintf("No answer within %v: a failover may be in progress. %s", loadTime,
				strings.Join(strings.Fields(v.Problem), " "))
		}
		// Waiting does not mend any other error.
		v.Live = v.Live && status(err) == http.StatusServiceUnavailable
		return v, err
	}
	v.Data = data
	return v, nil
}

func (p *page) write(w http.ResponseWriter, status int, v view) {
	var text bytes.Buffer
	if err := p.text.ExecuteTemplate(&text, "base", v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes())
}

// main writes the part of a page that changes.
func (p *page) main(w io.Writer, v view) error { return p.text.ExecuteTemplate(w, "main", v) }

// take reads at most most rows. If it returns that many, there may be more.
func take[T any](rows iter.Seq2[T, error], most int) (list []T, err error) {
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		if list = append(list, row); len(list) == most {
			break
		}
	}
	return list, nil
}

// entry is a page in the navigation.
type entry struct {
	Href, Label string
	pages       []string
}

// Is reports whether a page stands under the entry.
func (e entry) Is(page string) bool { return slices.Contains(e.pages, page) }

func entries() []entry {
	return []entry{
		{"./", "Locks", []string{"overview", "lock", "ask", "break", "done"}},
		{"sessions", "Sessions", []string{"sessions"}},
		{"jobs", "Jobs", []string{"jobs", "job"}}, {"elections", "Elections", []string{"elections"}},
		{"events", "Events", []string{"events"}},
	}
}
