package postgres

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

func of(name string, r driver.Request) driver.Request {
	r.Name = name
	return r
}

// owner is a request of the same owner's, whatever the attempt.
func owner(session, attempt string) driver.Request {
	r := request(session, attempt)
	r.Thread = "thread"
	return r
}

func TestWaitsGoRoundARing(t *testing.T) {
	s := newScript(t)
	for _, id := range []string{"a", "b", "c", "aside", "dead"} {
		s.session(id, time.Minute)
	}
	s.have(of("1", owner("a", "a has 1")))
	s.have(of("2", units(owner("b", "b has 2"), 2, 3)))
	s.have(of("2", units(owner("dead", "dead has 2"), 1, 3)))
	s.have(of("3", units(owner("c", "c has 3"), 1, driver.Readers)))
	s.have(of("4", owner("aside", "aside has 4")))
	s.enqueue(of("2", units(owner("dead", "dead waits for 2"), 3, 3)))
	s.enqueue(of("2", units(owner("aside", "aside waits for 2"), 2, 3)))
	s.enqueue(of("2", units(owner("a", "a waits for 2"), 1, 3)))
	s.enqueue(of("3", owner("b", "b waits for 3")))
	s.enqueue(of("1", owner("c", "c waits for 1")))
	s.enqueue(of("4", request("a", "another thread waits for 4"))) // and concerns nobody in the ring
	if dead, err := s.Expire(t.Context(), "dead"); dead || err != nil {
		t.Fatal(dead, err)
	}
	if _, err := s.pool.Exec(t.Context(), "UPDATE dblock_heartbeats SET expires_at = 0 WHERE session_id = 'dead'"); err != nil {
		t.Fatal(err)
	}
	waits, err := s.WaitGraph(t.Context(), []string{"a waits for 2", "not there"})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, w := range waits {
		if w.Since.Before(time.Now().Add(-time.Hour)) {
			t.Errorf("since when? %+v", w)
		}
		seen = append(seen, fmt.Sprintf("%s: %d of %d, need %d, holds %v", w.Attempt, w.Units, w.Capacity, w.Need, w.Holds))
	}
	slices.Sort(seen)
	want := []string{
		"a has 1: 0 of 0, need 0, holds true",
		"a waits for 2: 1 of 3, need 2, holds false",
		"b has 2: 2 of 3, need 0, holds true",
		"b waits for 3: 0 of 0, need 0, holds false",
		"c has 3: 1 of 2147483647, need 0, holds true",
		"c waits for 1: 0 of 0, need 0, holds false",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("got %q", seen)
	}
}

// A ring of five in a crowd of 10,000 who wait: each behind one of a hundred names, or all behind
// one.
func BenchmarkWaitsOfARingAmong10000(b *testing.B) {
	for _, names := range []int{100, 1} {
		b.Run(fmt.Sprintf("%d names", names), func(b *testing.B) {
			config, err := pgxpool.ParseConfig(dbtest.Postgres(b).DSN)
			if err != nil {
				b.Fatal(err)
			}
			pool, err := pgxpool.NewWithConfig(b.Context(), config)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(pool.Close)
			if _, err := pool.Exec(b.Context(), fmt.Sprintf(`
				INSERT INTO dblock_sessions SELECT 's' || i, 'h', i, '', 0 FROM generate_series(0, 99) i;
				INSERT INTO dblock_heartbeats SELECT id, dblock_now() + 3600000000 FROM dblock_sessions;
				INSERT INTO dblock_locks (name, token, acquired_at, session_id, host, thread, holds, attempt, waiters)
				SELECT 'n' || i, 1, 0, 's' || i %% 100, 'h', 'holder' || i, 1, 'h' || i, 10000 / %[1]d FROM generate_series(0, %[1]d - 1) i;
				INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity)
				SELECT 'n' || i %% %[1]d, i, 's' || i %% 100, 'h', 't' || i, 'w' || i, 0, '', 0, 1 + i %% 3, 3 FROM generate_series(0, 9999) i;
				INSERT INTO dblock_locks (name, token, acquired_at, session_id, host, thread, holds, attempt, waiters)
				SELECT 'r' || i, 1, 0, 's' || i, 'h', 'ring', 1, 'has' || i, 1 FROM generate_series(0, 4) i;
				INSERT INTO dblock_waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at)
				SELECT 'r' || (i + 1) %% 5, 1, 's' || i, 'h', 'ring', 'ring' || i, 0, '', 0 FROM generate_series(0, 4) i`, names)); err != nil {
				b.Fatal(err)
			}
			e := newEngine(pgxDB{pool})
			for b.Loop() {
				// The one at the end of a queue of units has to count all who are before it.
				waits, err := e.WaitGraph(b.Context(), []string{"ring0", "w9999"})
				if err != nil || len(waits) != 12 {
					b.Fatalf("%d rows, %v", len(waits), err)
				}
			}
		})
	}
}
