//go:build linux

package clusters

import (
	"io"
	"net"
	"sync"
	"time"
)

// door is an address that leads to the node that pick names, as MySQL's router does. When that
// changes, the connections to the node before are closed.
type door struct {
	listener net.Listener
	done     chan struct{}
	running  sync.WaitGroup

	mu    sync.Mutex // protects what follows
	to    string     // "": nowhere
	conns map[net.Conn]bool
}

// opened makes a door that asks pick every interval.
func opened(interval time.Duration, pick func() string) (*door, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &door{listener: listener, done: make(chan struct{}), to: pick(), conns: map[net.Conn]bool{}}
	d.running.Go(d.accept)
	d.running.Go(func() {
		for {
			select {
			case <-d.done:
				return
			case <-time.After(interval):
				d.lead(pick())
			}
		}
	})
	return d, nil
}

func (d *door) address() string { return d.listener.Addr().String() }

func (d *door) lead(to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to == d.to {
		return
	}
	d.to = to
	d.cut()
}

// cut MUST be called with mu locked.
func (d *door) cut() {
	for c := range d.conns {
		_ = c.Close()
	}
	clear(d.conns)
}

func (d *door) accept() {
	for {
		in, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.running.Go(func() { d.relay(in) })
	}
}

func (d *door) relay(in net.Conn) {
	defer in.Close()
	d.mu.Lock()
	to := d.to
	d.mu.Unlock()
	if to == "" {
		return
	}
	out, err := net.DialTimeout("tcp", to, time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	d.mu.Lock()
	led := d.to == to
	if led {
		d.conns[in], d.conns[out] = true, true
	}
	d.mu.Unlock()
	if !led {
		return
	}
	var both sync.WaitGroup
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { pipe(out, in) })
	both.Go(func() { pipe(in, out) })
	both.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, in)
	delete(d.conns, out)
}

func (d *door) close() {
	close(d.done)
	_ = d.listener.Close()
	d.mu.Lock()
	d.to = ""
	d.cut()
	d.mu.Unlock()
	d.running.Wait()
}
