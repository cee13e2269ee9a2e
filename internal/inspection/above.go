package inspection

// Above returns the first string, in the order of bytes, above all strings with a prefix; "" where
// there is none.
func Above(prefix string) string {
	limit := []byte(prefix)
	for len(limit) > 0 && limit[len(limit)-1] == 0xff {
		limit = limit[:len(limit)-1]
	}
	if len(limit) > 0 {
		limit[len(limit)-1]++
	}
	return string(limit)
}
