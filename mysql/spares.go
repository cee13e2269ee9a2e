package mysql

import (
	"slices"
	"sync"

	"github.com/dblock-go/dblock/driver"
)

// maxSpares is from how many spares on an engine sets no more aside: one for each goroutine that
// comes back to a name right after it has released it, in two runs.
const maxSpares = 2 * driver.MaxRun

// spares are the places that HandToHead has set aside for JoinQueue, by their tickets. No other
// engine knows them. It is a store, not a promise: a spare that is gone from the tables only makes
// the long way necessary.
type spares struct {
	mu      sync.Mutex
	tickets []int64
}

func (s *spares) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tickets) >= maxSpares
}

func (s *spares) put(tickets ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickets = append(s.tickets, tickets...)
}

// take returns up to n spares, which are the caller's from then on.
func (s *spares) take(n int) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := max(len(s.tickets)-n, 0)
	taken := slices.Clone(s.tickets[rest:])
	s.tickets = s.tickets[:rest]
	return taken
}
