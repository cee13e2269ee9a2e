//go:build unix

package main

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// relay is a way to a server that can be cut off.
type relay struct {
	net.Listener
	to string

	mu      sync.Mutex // protects what follows
	conns   []net.Conn
	cut     bool
	refused int // connections, since it was cut
}

// through is the world as a host sees it that reaches its server over a relay.
func (w *world) through() (*world, *relay) {
	w.Helper()
	u, err := url.Parse(w.dsn)
	if err != nil {
		w.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	r := &relay{Listener: listener, to: u.Host}
	var running sync.WaitGroup
	w.Cleanup(func() {
		_ = r.Close()
		r.cutOff()
		running.Wait()
	})
	running.Go(func() {
		for {
			c, err := r.Accept()
			if err != nil {
				return
			}
			if on := r.forward(c); on != nil {
				running.Go(func() { _, _ = io.Copy(on, c); _ = on.Close() })
				running.Go(func() { _, _ = io.Copy(c, on); _ = c.Close() })
			}
		}
	})
	u.Host = listener.Addr().String()
	far := *w
	far.dsn = u.String()
	return &far, r
}

// forward connects to the server, unless the way is cut.
func (r *relay) forward(c net.Conn) net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.cut {
		if on, err := net.Dial("tcp", r.to); err == nil {
			r.conns = append(r.conns, c, on)
			return on
		}
	}
	r.refused++
	_ = c.Close()
	return nil
}

func (r *relay) cutOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.refused = false, 0
}

func (r *relay) refuses() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused > 0
}

// The host with the command is cut off from the server, for good.
func TestAHostThatIsCutOffStopsItsCommandBeforeAnotherBegins(t *testing.T) {
	eachServer(t, func(w *world) {
		far, way := w.through()
		w.diesBeforeTheNext(far, []string{"--ttl", "4s", "--grace", "1s"}, way.cutOff)
	})
}

func TestACommandGoesOnWhereTheDatabaseComesBackInTime(t *testing.T) {
	eachServer(t, func(w *world) {
		far, way := w.through()
		folder := w.TempDir()
		runs, may := filepath.Join(folder, "runs"), filepath.Join(folder, "may end")
		c := far.command("run", "--ttl", "15s", "--grace", "1s", "n", "--", "sh", "-c",
			`echo >$0; while [ ! -e "$1" ]; do sleep 0.01; done`, runs, may)
		var complaint bytes.Buffer
		c.Stderr = &complaint
		if err := c.Start(); err != nil {
			w.Fatal(err)
		}
		w.fileWith(runs, "\n")
		way.cutOff()
		w.until(way.refuses)
		way.heal()
		// Its next heartbeat comes through.
		until := func() time.Time {
			info, err := w.client.Inspect(w.Context(), "n")
			if err != nil || len(info.Holders) != 1 {
				w.Fatalf("%+v, %v", info, err)
			}
			return info.Holders[0].Until
		}
		before := until()
		w.until(func() bool { return until().After(before.Add(time.Second)) })
		if err := os.WriteFile(may, nil, 0o600); err != nil {
			w.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			w.Errorf("%v: %s", err, &complaint)
		}
		contains(w, w.must("ls"), "No lock is held")
	})
}
