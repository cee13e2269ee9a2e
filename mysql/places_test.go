package mysql_test

import (
	"testing"

	"github.com/dblock-go/dblock/driver"
)

// TestPlacesAreGivenUpByTheirKeys has a session give up 64 places, beside a transaction that has
// locked the only other row of the table. A small table is the one that servers like to read from
// end to end.
func TestPlacesAreGivenUpByTheirKeys(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		a.take(t, "n")
		a.take(t, "other")
		b.enqueue(t, "other")
		var attempts []string
		for range 64 {
			attempts = append(attempts, b.enqueue(t, "n"))
		}
		s.transaction(t, "UPDATE dblock_waiters SET min_hold = 1 WHERE name = 'other'")
		_, err := b.pool.Exec("SET SESSION innodb_lock_wait_timeout = 1")
		must(t, err)
		must(t, second(b.Leave(t.Context(), b.session, "n", attempts[:63])))
		if left := s.number(t, "SELECT COUNT(*) FROM dblock_waiters WHERE name = 'n'"); left != 1 {
			t.Errorf("%d places are left, want 1", left)
		}
	})
}

// TestPlacesAreGivenUpWithoutReadingOthers has 64 of 200 places given up.
func TestPlacesAreGivenUpWithoutReadingOthers(t *testing.T) {
	each(t, func(t *testing.T, s server) {
		a, b := s.actor(t), s.actor(t)
		a.take(t, "n")
		var rs []driver.Request
		var attempts []string
		for range 200 {
			r := b.request("n")
			rs, attempts = append(rs, r), append(attempts, r.Attempt)
		}
		must(t, third(b.Enqueue(t.Context(), rs...)))
		_, err := b.pool.Exec("FLUSH STATUS")
		must(t, err)
		must(t, second(b.Leave(t.Context(), b.session, "n", attempts[:64])))
		// Each place is found twice by its key, and the list has a row for each.
		rows, err := b.pool.Query("SHOW SESSION STATUS LIKE 'Handler_read%'")
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var how string
			var n int
			must(t, rows.Scan(&how, &n))
			t.Log(how, n)
			if how != "Handler_read_key" && n > 2*(64+1) { // MariaDB 11 reads the list twice
				t.Errorf("%s: %d, want no more than the list has, twice", how, n)
			}
		}
		must(t, rows.Err())
	})
}
