package connpool

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/dblock-go/dblock/internal/driver"
)

// pools lists, by pool, the side pools that keep connections of it.
var pools = struct {
	mu sync.Mutex
	of map[any]map[shared]bool
}{of: map[any]map[shared]bool{}}

// shared is a side pool, without the type of its connections.
type shared interface{ sessions() int }

// sessions counts the clients with a TTL, each of which keeps a connection for heartbeats.
func (c *Pool[C]) sessions() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.clients {
		if one.ttl > 0 {
			n++
		}
	}
	return n
}

// register records whether the side pool has clients that keep connections of its pool.
func (c *Pool[C]) register() {
	if c.config.Source == nil {
		return
	}
	keeps := c.sessions() > 0
	pools.mu.Lock()
	defer pools.mu.Unlock()
	sides := pools.of[c.config.Source]
	switch {
	case keeps && sides == nil:
		pools.of[c.config.Source] = map[shared]bool{c: true}
	case keeps:
		sides[c] = true
	default:
		delete(sides, c)
		if len(sides) == 0 {
			delete(pools.of, c.config.Source)
		}
	}
}

// Leaves returns nil if a pool that allows most connections (0: any number) has one left when each
// client on it, of this side pool or another, keeps one for heartbeats, and each side pool one.
// Otherwise it returns ErrConfig, with the numbers.
func (c *Pool[C]) Leaves(most int) error {
	if err := c.leaves(most, 1); err != nil {
		return driver.Fail(driver.ErrConfig, err)
	}
	return nil
}

// LeavesToListen is Leaves with another connection for each client, to listen on. Its error is
// ErrUnsupported.
func (c *Pool[C]) LeavesToListen(most int) error {
	if err := c.leaves(most, 2); err != nil {
		return driver.Fail(driver.ErrUnsupported, fmt.Errorf("no connection is left to listen for wake-ups: %w", err))
	}
	return nil
}

func (c *Pool[C]) leaves(most, ofEach int) error {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	clients, sides := 0, pools.of[c.config.Source]
	for one := range sides {
		clients += one.sessions()
	}
	keep := len(sides) + clients*ofEach
	switch {
	case most == 0 || keep < most:
		return nil
	case clients == 1:
		return fmt.Errorf("the pool allows %d connections, and the client of dblock on it keeps %d: it must allow more",
			most, keep)
	default:
		return fmt.Errorf("the pool allows %d connections, and the %d clients of dblock on it keep %d: it must "+
			"allow more, or one client serve for all", most, clients, keep)
	}
}

// Enough returns ErrConfig, with the remedy, if a pool allows only one or two connections (0: any
// number), and nil otherwise.
func Enough(most int, remedy string) error {
	if most == 1 || most == 2 {
		return driver.Fail(driver.ErrConfig,
			fmt.Errorf("the pool allows %d connections; heartbeats need one of their own, work that may wait for a "+
				"row another, and all other work a third: %s or more", most, remedy))
	}
	return nil
}

// EachIdle calls f with each idle connection of a pool. It takes all of them before it returns any,
// because a pool lends the one that came back last.
func EachIdle(ctx context.Context, pool *sql.DB, f func(conn *sql.Conn)) {
	for range pool.Stats().Idle {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return
		}
		defer conn.Close()
		f(conn)
	}
}
