package connpool

import (
	"fmt"
	"strings"
	"sync"
)

// Use is the purpose for which a client keeps a connection of the application's pool.
type Use int

// The uses of connections.
const (
	Heartbeats Use = iota
	Beside
	Listening
	uses
)

func (u Use) String() string {
	return [uses]string{"heartbeats", "work beside transactions", "listening"}[u]
}

// kept has, by pool, the connections of it that clients keep.
var kept = struct {
	mu sync.Mutex
	of map[any]map[any]Use
}{of: map[any]map[any]Use{}}

// Keep records that a client keeps a connection of a pool, until Leave. It does nothing without a
// pool.
func Keep(pool, conn any, use Use) {
	if pool == nil {
		return
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.of[pool] == nil {
		kept.of[pool] = map[any]Use{}
	}
	kept.of[pool][conn] = use
}

// Leave records that a connection was closed. It may be called again.
func Leave(pool, conn any) {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if delete(kept.of[pool], conn); len(kept.of[pool]) == 0 {
		delete(kept.of, pool)
	}
}

// Kept returns the number of connections of a pool that the clients on it keep, with their uses; ""
// for none.
func Kept(pool any) string {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	var counts [uses]int
	for _, use := range kept.of[pool] {
		counts[use]++
	}
	var each []string
	for use, n := range counts {
		if n > 0 {
			each = append(each, fmt.Sprintf("%d for %v", n, Use(use)))
		}
	}
	if each == nil {
		return ""
	}
	return fmt.Sprintf("%d (%s)", len(kept.of[pool]), strings.Join(each, ", "))
}
