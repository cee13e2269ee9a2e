package page

import (
	"fmt"
	"testing"
)

func TestAPageIsNoLargerThanWhatIsLeft(t *testing.T) {
	for _, c := range []struct {
		limit uint
		there int
		sizes string
		rows  int
	}{
		{1, 10, "[1]", 1},
		{120, 1000, "[120]", 120},
		{120, 70, "[120]", 70},
		{501, 1000, "[500 1]", 501},
		{0, 30, "[50]", 30},
		{0, 50, "[50 100]", 50},
		{0, 1500, "[50 100 200 400 500 500]", 1500},
	} {
		var sizes []int
		n, read := 0, 0
		Each(c.limit, func(int, error) bool { n++; return true }, func(size int) (rows []int, more bool, err error) {
			sizes = append(sizes, size)
			rows = make([]int, min(size, c.there-read))
			read += len(rows)
			return rows, len(rows) == size, nil
		})
		if fmt.Sprint(sizes) != c.sizes || n != c.rows {
			t.Errorf("%d of %d: %d rows in pages of %v: want %d in %s", c.limit, c.there, n, sizes, c.rows, c.sizes)
		}
	}
}

// Rows that a filter leaves out of a page do not count: the next page has the rest.
func TestALimitCountsWhatIsYielded(t *testing.T) {
	n, read := 0, 0
	Each(10, func(int, error) bool { n++; return true }, func(size int) ([]int, bool, error) {
		read += size
		return make([]int, (size+1)/2), true, nil
	})
	if n != 10 || read <= 10 {
		t.Errorf("%d rows of %d", n, read)
	}
}
