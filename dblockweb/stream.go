package dblockweb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"
)

const (
	leastPause  = 500 * time.Millisecond // between two reads of a stream, however often its lock changes
	heartbeat   = 15 * time.Second       // so that proxies do not take a quiet stream for a dead one
	writeTime   = 10 * time.Second       // a viewer that does not read for so long is gone
	watchAgain  = time.Second            // after Watch has failed
	reconnectMs = 2000                   // how soon a browser opens a stream again
)

// update is a message of a stream.
type update struct {
	Now  int64  `json:"now"`            // of this machine, in milliseconds, since the browser's clock may be wrong
	HTML string `json:"html,omitempty"` // of <main>
	Text string `json:"text,omitempty"` // of a problem
}

// ticking is what of a page changes by itself, in the browser too.
var ticking = regexp.MustCompile(`>[^<]*</time>`)

// stream sends a page whenever it has changed, until the request ends.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, p *page, q query) {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		w.Header().Set("Retry-After", "30")
		http.Error(w, "Too many people look at this page.", http.StatusServiceUnavailable)
		return
	}
	s := sender{w, http.NewResponseController(w)}
	_ = s.control.SetReadDeadline(time.Time{}) // a server's ReadTimeout would end the request
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	if errors.Is(s.control.Flush(), http.ErrNotSupported) {
		http.Error(w, "This server sends no streams.", http.StatusNotImplemented)
		return
	}
	if s.send("retry: %d\n\n", reconnectMs) != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	changed := make(chan struct{}, 1)
	if name := q.get("name"); p.watch {
		watching.Go(func() { h.watch(ctx, name, changed) })
	}
	poll, beat := time.NewTicker(p.every), time.NewTicker(heartbeat)
	defer poll.Stop()
	defer beat.Stop()
	var last string // what the browser shows, but for what ticks
	for {
		if q.access = h.access(r); !q.access.Look {
			return
		}
		v, err := p.read(ctx, q)
		if ctx.Err() != nil {
			return
		}
		event, message, shows := "problem", update{Now: v.Now.UnixMilli(), Text: v.Problem}, "problem: "+v.Problem
		if err == nil {
			var text bytes.Buffer
			if p.main(&text, v) != nil {
				return
			}
			event, message.HTML = "main", text.String()
			shows = ticking.ReplaceAllString(message.HTML, "")
		}
		if shows != last {
			if s.message(event, message) != nil {
				return
			}
			last = shows
		}
		if !pause(ctx, leastPause) {
			return
		}
		for waits := true; waits; {
			select {
			case <-changed:
				waits = false
			case <-poll.C:
				waits = false
			case <-beat.C:
				if s.send(":\n\n") != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// watch tells of changes of a lock until ctx ends. While the database is away, the poll tells that.
func (h *handler) watch(ctx context.Context, name string, changed chan<- struct{}) {
	for ctx.Err() == nil {
		for _, err := range h.of.Watch(ctx, name) {
			if err != nil {
				break
			}
			select {
			case changed <- struct{}{}:
			default: // one change is as good as two
			}
			pause(ctx, leastPause) // meanwhile Watch reads nothing
		}
		pause(ctx, watchAgain)
	}
}

// pause reports false where ctx has ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// sender writes to a browser.
type sender struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (s sender) message(event string, u update) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text) // of one line, whatever is in a name
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(u); err != nil {
		return err
	}
	return s.send("event: %s\ndata: %s\n", event, text.String())
}

// send writes at once. The server's WriteTimeout is for answers that end: here each message has its
// own.
func (s sender) send(format string, arguments ...any) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime)) // what cannot set one, has none
	if _, err := fmt.Fprintf(s, format, arguments...); err != nil {
		return err
	}
	return s.control.Flush()
}
