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
	// leastPause is the pause between two reads of a stream, even if its lock changes more often.
	leastPause  = 500 * time.Millisecond
	heartbeat   = 15 * time.Second // keeps proxies from closing a quiet stream
	writeTime   = 10 * time.Second // a viewer that reads nothing for so long is gone
	watchAgain  = time.Second      // after Watch has failed
	reconnectMs = 2000             // the delay before a browser reopens a stream
)

// update is a message of a stream.
type update struct {
	// Now is this machine's clock, in milliseconds, since the browser's may be wrong.
	Now  int64  `json:"now"`
	HTML string `json:"html,omitempty"` // of <main>
	Text string `json:"text,omitempty"` // of a problem
}

// ticking matches the parts of a page that the browser updates by itself.
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
	var last string // the last page sent, without the ticking parts
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

// watch signals changes of a lock until ctx ends. While the database is unavailable, the poll
// reports that.
func (h *handler) watch(ctx context.Context, name string, changed chan<- struct{}) {
	for ctx.Err() == nil {
		for _, err := range h.of.Watch(ctx, name) {
			if err != nil {
				break
			}
			select {
			case changed <- struct{}{}:
			default: // a pending signal covers this change too
			}
			pause(ctx, leastPause) // Watch reads nothing meanwhile
		}
		pause(ctx, watchAgain)
	}
}

// pause returns false if ctx ends first.
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
	encoder := json.NewEncoder(&text) // one line, whatever a name contains
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(u); err != nil {
		return err
	}
	return s.send("event: %s\ndata: %s\n", event, text.String())
}

// send writes at once. Each message has a write deadline of its own, since the server's
// WriteTimeout is for answers that end.
func (s sender) send(format string, arguments ...any) error {
	// an error: the connection has no deadlines
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := fmt.Fprintf(s, format, arguments...); err != nil {
		return err
	}
	return s.control.Flush()
}
