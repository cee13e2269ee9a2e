package dbtest

import (
	"net"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// Proxy is a TCP proxy before a server, for faults of the network. It forwards until it is told
// otherwise.
type Proxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu     sync.Mutex
	moved  sync.Cond // signals each change of what mu protects
	links  map[*link]bool
	cut    bool
	cuts   bool // has closed a new connection since Cut
	frozen bool
	drop   bool
	watch  func(request []byte)
	closed bool
}

// link is one connection through the proxy. Its fields belong to the proxy's mu.
type link struct {
	client, server net.Conn
	torn           bool // lost bytes: it can never be healed
}

// NewProxy starts a proxy before addr, which is closed when the test has ended.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: listener, target: addr, links: make(map[*link]bool)}
	p.moved.L = &p.mu
	p.done.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections, and every new one at once, until Heal.
func (p *Proxy) Cut() {
	p.change(func() {
		p.cut, p.cuts = true, false
		p.closeLinks(func(*link) bool { return true })
	})
}

// Refused reports whether a client has tried to connect since Cut.
func (p *Proxy) Refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Freeze holds back what both sides send, and that one of them has gone, like a network that went
// away without a word, until Heal delivers it.
func (p *Proxy) Freeze() { p.change(func() { p.frozen = true }) }

// DropReplies forwards requests and throws the replies away. The connections that lose one are
// closed by Heal.
func (p *Proxy) DropReplies() { p.change(func() { p.drop = true }) }

// Watch calls f with what clients send, before it is forwarded: what f tells the proxy holds for
// the reply. A nil f ends it.
func (p *Proxy) Watch(f func(request []byte)) { p.change(func() { p.watch = f }) }

// Heal ends every fault. What Watch set stays.
func (p *Proxy) Heal() {
	p.change(func() {
		p.cut, p.frozen, p.drop = false, false, false
		p.closeLinks(func(l *link) bool { return l.torn })
	})
}

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.moved.Broadcast()
}

func (p *Proxy) close() {
	p.change(func() {
		p.closed = true
		p.closeLinks(func(*link) bool { return true })
	})
	_ = p.listener.Close()
	p.done.Wait()
}

// closeLinks MUST be called with mu locked.
func (p *Proxy) closeLinks(which func(*link) bool) {
	for l := range p.links {
		if which(l) {
			delete(p.links, l)
			_ = l.client.Close()
			_ = l.server.Close()
		}
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	p.mu.Lock()
	for p.frozen && !p.cut && !p.closed {
		p.moved.Wait()
	}
	refuse := p.cut || p.closed
	p.cuts = p.cuts || p.cut
	p.mu.Unlock()
	if refuse {
		_ = client.Close()
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server}
	p.change(func() {
		p.links[l] = true
		if p.cut || p.closed {
			p.closeLinks(func(other *link) bool { return other == l })
		}
	})
	p.done.Go(func() { p.pump(l, client, server, p.request) })
	p.pump(l, server, client, p.reply)
}

// pump copies from one side to the other what pass lets through, and closes the link at its end.
func (p *Proxy) pump(l *link, from, to net.Conn, pass func(*link, []byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && pass(l, buffer[:n]) {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			p.change(func() {
				p.thaw(l) // the other side does not hear of the end before
				p.closeLinks(func(other *link) bool { return other == l })
			})
			return
		}
	}
}

func (p *Proxy) request(l *link, data []byte) bool {
	p.mu.Lock()
	watch := p.watch
	p.mu.Unlock()
	if watch != nil {
		watch(data)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thaw(l)
}

func (p *Proxy) reply(l *link, _ []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.thaw(l) {
		return false
	}
	if p.drop {
		l.torn = true
		return false
	}
	return true
}

// thaw waits while the proxy is frozen, and reports whether the link still stands. It MUST be
// called with mu locked.
func (p *Proxy) thaw(l *link) bool {
	for p.frozen && p.links[l] {
		p.moved.Wait()
	}
	return p.links[l]
}
