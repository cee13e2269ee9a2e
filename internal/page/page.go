// Package page reads long lists page by page, for iterators.
package page

const (
	// Largest limits the rows that are read at a time.
	Largest = 500

	// first is the size of the first page. It is small, since many iterations end early.
	first = 50
)

// Each yields the rows that next reads, page by page, until there are no more: at most limit rows,
// or all rows if limit is 0. next reads up to size rows. Each ends after the first error.
func Each[T any](limit uint, yield func(T, error) bool, next func(size int) (rows []T, more bool, err error)) {
	n := uint(0)
	for size := first; ; size = min(2*size, Largest) {
		if limit > 0 {
			size = int(min(Largest, limit-n))
		}
		rows, more, err := next(size)
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
		if n += uint(len(rows)); !more || n == limit {
			return
		}
	}
}
