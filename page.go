package dblock

const (
	// pageSize is how many events, runs, names or sessions are read at a time.
	pageSize = 500

	// firstPage is how many are read first: an iteration that ends early has read few in vain.
	firstPage = 50
)

// pages yields what next reads, page by page, until there is no more: limit rows at most, or all
// where limit is 0. next is told how many it may read. The first error ends it.
func pages[T any](limit uint, yield func(T, error) bool, next func(size int) (page []T, more bool, err error)) {
	n := uint(0)
	for size := firstPage; ; size = min(2*size, pageSize) {
		if limit > 0 {
			size = int(min(pageSize, limit-n))
		}
		page, more, err := next(size)
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, row := range page {
			if !yield(row, nil) {
				return
			}
		}
		if n += uint(len(page)); !more || n == limit {
			return
		}
	}
}
