//go:build unix

package fault

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// vacancyInterval is short beside the time for which a lost hand-off is not noticed by its waiter.
const vacancyInterval = 10 * time.Millisecond

// vacancies are the moments at which the first waiter of a queue was alive and would have fitted. A
// transaction that makes room grants it to as many waiters as fit. So no snapshot ever shows a
// vacancy.
type vacancies struct {
	mu    sync.Mutex // protects what follows
	looks int
	found []string
}

const vacancyQuery = `SELECT COALESCE(min(l.name), '') FROM dblock_locks l
	JOIN dblock_waiters q ON q.name = l.name JOIN dblock_sessions s ON s.id = q.session_id JOIN dblock_heartbeats h ON h.session_id = q.session_id
	WHERE l.session_id IS NULL AND l.rests_until <= %s AND NOT s.dead AND h.expires_at > %[1]s
	AND q.ticket = (SELECT min(f.ticket) FROM dblock_waiters f WHERE f.name = q.name)
	AND (l.shared_units = 0 OR q.units > 0 AND l.shared_units + q.units <= l.capacity AND l.shared_units + q.units <= q.capacity)`

// vacancies looks for them until the test ends.
func (w *world) vacancies() *vacancies {
	w.Helper()
	ctx, stop := context.WithCancel(context.Background())
	v, db, query := &vacancies{}, w.db.SQL(w), fmt.Sprintf(vacancyQuery, w.now())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(vacancyInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			var name string
			// an error is a connection that a fault hit
			if err := db.QueryRowContext(ctx, query).Scan(&name); err == nil {
				v.mu.Lock()
				v.looks++
				if name != "" {
					v.found = append(v.found, fmt.Sprintf("%s had room for the first in its queue", name))
				}
				v.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	w.Cleanup(func() {
		stop()
		done.Wait()
	})
	return v
}
