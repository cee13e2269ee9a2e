package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// paper is a database in memory, which can be away, and counts what it is asked.
type paper struct {
	driver.Backend
	*memory.DB
	link *memory.Link
	deaf bool
	host string // the folder of its host; "": none
	// before is called before each call; an error is the answer. nil: nothing is called.
	before func(c *fakedb.Call) error
	why    error // that it is away

	opened, ended, attending atomic.Int64 // sessions; clients
}

func newPaper() *paper {
	p := &paper{DB: memory.NewDB(), why: errAway}
	p.link = memory.NewLink(p.DB)
	p.Backend = fakedb.Hooked(p.link, p.hook)
	p.Locks.Now = func() (token int64) { // of the next grant, whatever its name
		for _, name := range p.Locks.All() {
			row, _ := p.Locks.Row(name)
			token = max(token, row.Token)
		}
		return token + 1
	}
	return p
}

// hook has every call answered, also where its caller has left.
func (p *paper) hook(ctx context.Context, c *fakedb.Call) error {
	if p.before != nil {
		if err := p.before(c); err != nil {
			return err
		}
	}
	switch c.Method {
	case "OpenSession":
		p.opened.Add(1)
	case "EndSession":
		p.ended.Add(1)
	case "Listen":
		if p.deaf {
			return driver.ErrCannotListen
		}
		return c.Do(ctx)
	}
	return c.Do(context.WithoutCancel(ctx))
}

func (p *paper) Attend(string, time.Duration) (leave func()) {
	p.attending.Add(1)
	return func() { p.attending.Add(-1) }
}

func (p *paper) HostFolder(bool) (path string, ok bool) { return p.host, p.host != "" }

// newPaperClient makes a client on a database in the present time, which ends with the test.
func newPaperClient(t testing.TB, p driver.Backend, change func(c *Config)) *Client {
	began := time.Now()
	config := Config{
		TTL: 15 * time.Second, Host: "host", App: "app", Log: testlog.New(io.Discard, t.Error), Deadlock: time.Second,
		Clock:       clock.Func(func() time.Duration { return time.Since(began) }),
		NotAcquired: func(driver.State, bool, error) error { return ErrNotAcquired },
		Deadlocked:  func(deadlock.Cycle) error { return ErrDeadlock },
	}
	if change != nil {
		change(&config)
	}
	c := New(p, config)
	t.Cleanup(func() { assert.NoError(t, c.Close(context.Background())) })
	return c
}

// leave breaks every connection, until comeBack.
func (p *paper) leave() { p.link.Disconnect(p.why) }

func (p *paper) comeBack() { p.link.Reconnect() }

var errAway = driver.Fail(driver.ErrUnavailable, errors.New("away"))
