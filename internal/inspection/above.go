package inspection

// Above is the first name, in the order of bytes, behind all that begin with a prefix; "" where
// every name behind it begins with it.
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
