package dbtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// warm keeps the backends of PostgreSQL that the tests of one database have closed, for connections
// that are opened with the same parameters. To start a backend and to fill its caches takes the
// processor longer than most statements of a test. A backend that is kept has discarded all that
// its session had (DISCARD ALL). Its name is warmName meanwhile.
type warm struct {
	mu   sync.Mutex            // protects the fields below
	idle map[string][]*backend // by the parameters of their sessions
	kept int                   // the backends in idle, and those that are being readied for it
	over bool                  // the database is gone

	address *net.TCPAddr // of the server
}

// backend is a connection to a backend.
type backend struct {
	net.Conn
	greeting []byte // what the server said from the startup packet to the first ReadyForQuery
}

const (
	warmName = "kept by dbtest"
	// mostIdle limits the backends that are kept for a database: servers have a limit for all.
	mostIdle = 5
	// warmTimeout bounds what is asked of a backend before it is kept, and before it is used again.
	warmTimeout = 2 * time.Second
)

// readyForQuery is that message, outside of a transaction.
var readyForQuery = []byte{'Z', 0, 0, 0, 5, 'I'}

// terminate is the message with which a client closes its connection.
var terminate = []byte{'X', 0, 0, 0, 4}

// dial connects as a net.Dialer does, unless a backend is kept: then the startup packet tells
// whether it will do. Connections through a proxy are left alone.
func (w *warm) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if address != w.address.String() {
		return d.DialContext(ctx, network, address)
	}
	c := &warmConn{
		of: w, started: make(chan struct{}),
		dial: func() (net.Conn, error) { return d.DialContext(ctx, network, address) },
	}
	w.mu.Lock()
	some := w.kept > 0
	w.mu.Unlock()
	if some {
		return c, nil
	}
	var err error
	c.conn, err = c.dial()
	return c, err
}

// take returns a backend that was started with these parameters, nil if none is left.
func (w *warm) take(parameters string) *backend {
	for {
		w.mu.Lock()
		idle := w.idle[parameters]
		if len(idle) == 0 {
			w.mu.Unlock()
			return nil
		}
		b := idle[len(idle)-1]
		w.idle[parameters] = idle[:len(idle)-1]
		w.kept--
		w.mu.Unlock()
		if b.ask("RESET application_name", "RESET") == nil {
			return b
		}
		_ = b.Close() // a test has killed it
	}
}

// put keeps a backend, or ends it: where there are enough, or what its session had cannot be
// discarded.
func (w *warm) put(parameters string, b *backend) error {
	w.mu.Lock()
	room := !w.over && w.kept < mostIdle
	if room {
		w.kept++
	}
	w.mu.Unlock()
	if !room {
		return b.end()
	}
	err := b.ask("DISCARD ALL", "DISCARD ALL")
	if err == nil {
		err = b.ask("SET application_name = '"+warmName+"'", "SET")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || w.over {
		w.kept--
		return b.end()
	}
	if w.idle == nil {
		w.idle = map[string][]*backend{}
	}
	w.idle[parameters] = append(w.idle[parameters], b)
	return nil
}

// end ends all backends, and those that come.
func (w *warm) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, idle := range w.idle {
		w.kept -= len(idle)
		for _, b := range idle {
			_ = b.end()
		}
	}
	w.idle = nil
}

// end closes the connection as a client does.
func (b *backend) end() error {
	_, _ = b.Write(terminate)
	return b.Close()
}

// ask runs a statement, and fails unless it ends with the tag and outside of a transaction.
func (b *backend) ask(statement, tag string) error {
	if err := b.SetDeadline(time.Now().Add(warmTimeout)); err != nil {
		return err
	}
	message := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(statement)+5))
	if _, err := b.Write(append(append(message, statement...), 0)); err != nil {
		return err
	}
	for done := false; ; {
		head := make([]byte, 5)
		if _, err := io.ReadFull(b, head); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(b, body); err != nil {
			return err
		}
		switch {
		case head[0] == 'C' && string(body) == tag+"\x00":
			done = true
		case head[0] == 'Z' && done && body[0] == 'I':
			return b.SetDeadline(time.Time{})
		case head[0] == 'E', head[0] == 'Z' && done:
			return errLeft
		}
	}
}

// warmConn is a connection that a test has opened.
type warmConn struct {
	of   *warm
	dial func() (net.Conn, error)

	// started is closed with the startup packet, and with the connection. Before, there is nothing
	// to read, though pgx may begin to: where it writes for long.
	started chan struct{}

	mu      sync.Mutex // protects the fields below
	conn    net.Conn   // nil before the startup packet, where a backend may be kept, and once it is closed
	begun   bool       // something was sent
	startup string     // the session's parameters; empty: it is no session, but the cancelling of a statement
	kept    *backend   // once its greeting is whole
	unread  []byte     // of the greeting of a backend that was kept
	said    []byte     // by a new backend, until its greeting is whole
	last    []byte     // the last bytes that were read
	reading int        // calls of Read
	closing bool       // the last that was sent is terminate
	closed  bool
}

func (c *warmConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	if !c.begun {
		if err := c.start(p); err != nil || c.kept != nil {
			c.mu.Unlock()
			return len(p), err
		}
	} else if len(c.startup) > 0 && bytes.Equal(p, terminate) {
		c.closing = true
		c.mu.Unlock()
		return len(p), nil
	}
	c.last, c.closing = nil, false
	conn := c.conn
	c.mu.Unlock()
	return conn.Write(p)
}

// start looks at the first packet, with mu locked: either a backend is kept that has answered it
// already, or it is still to be sent.
func (c *warmConn) start(p []byte) (err error) {
	c.begun = true
	defer close(c.started)
	if parameters := parametersOf(p); parameters != "" {
		c.startup = parameters
		if c.conn != nil {
			return nil // it was new before one was kept
		}
		if b := c.of.take(parameters); b != nil {
			c.conn, c.kept, c.unread, c.last = b.Conn, b, b.greeting, readyForQuery
			return nil
		}
	}
	if c.conn == nil {
		c.conn, err = c.dial()
	}
	return err
}

// parametersOf returns the parameters of a session from its startup packet, in a fixed order: pgx
// has them in a map. It returns "" for another packet.
func parametersOf(packet []byte) string {
	var m pgproto3.StartupMessage
	const length = 4
	if len(packet) < length || m.Decode(packet[length:]) != nil {
		return ""
	}
	return fmt.Sprint(m.Parameters) // in the order of their names
}

func (c *warmConn) Read(p []byte) (int, error) {
	<-c.started
	c.mu.Lock()
	if len(c.unread) > 0 {
		defer c.mu.Unlock()
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	conn := c.conn
	if conn == nil {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	if c.closing { // pgx waits for the server's end: a statement was cancelled, and may have answers to come
		c.closing = false
		_, _ = conn.Write(terminate)
	}
	c.reading++
	c.mu.Unlock()
	n, err := conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading--
	if c.last = append(c.last, p[:n]...); len(c.last) > len(readyForQuery) {
		c.last = bytes.Clone(c.last[len(c.last)-len(readyForQuery):])
	}
	if c.kept == nil && len(c.startup) > 0 {
		if c.said = append(c.said, p[:n]...); bytes.HasSuffix(c.said, readyForQuery) {
			c.kept, c.said = &backend{Conn: conn, greeting: c.said}, nil
		}
	}
	return n, err
}

// Close keeps the backend if the client has said goodbye to it, and neither side has more to say.
func (c *warmConn) Close() error {
	c.mu.Lock()
	conn := c.conn
	if c.conn = nil; !c.begun && !c.closed {
		close(c.started)
	}
	c.closed = true
	if conn == nil {
		c.mu.Unlock()
		return nil
	}
	keep := c.closing && c.reading == 0 && c.kept != nil && len(c.unread) == 0 && bytes.Equal(c.last, readyForQuery)
	c.mu.Unlock()
	if keep {
		return c.of.put(c.startup, c.kept)
	}
	if c.closing {
		_, _ = conn.Write(terminate)
	}
	return conn.Close()
}

// open returns the connection below; nil: there is none yet, or none any more.
func (c *warmConn) open() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

func (c *warmConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr is where pgx sends a request to cancel a statement.
func (c *warmConn) RemoteAddr() net.Addr { return c.of.address }

func (c *warmConn) SetDeadline(t time.Time) error {
	if conn := c.open(); conn != nil {
		return conn.SetDeadline(t)
	}
	return nil
}

func (c *warmConn) SetReadDeadline(t time.Time) error {
	if conn := c.open(); conn != nil {
		return conn.SetReadDeadline(t)
	}
	return nil
}

func (c *warmConn) SetWriteDeadline(t time.Time) error {
	if conn := c.open(); conn != nil {
		return conn.SetWriteDeadline(t)
	}
	return nil
}

// Keep has connections of pgx use the backends that were kept, for a database that is Warm.
func (d Database) Keep(config *pgx.ConnConfig) {
	if d.warm != nil {
		config.DialFunc = d.warm.dial
	}
}
