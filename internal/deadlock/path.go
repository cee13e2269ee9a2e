package deadlock

import (
	"crypto/rand"
	"strings"
)

// An attempt's name has at most 32 characters, the width of its columns.
const (
	separator = "."
	random    = 13 // characters, of 5 bits each, where a path follows
	longest   = 18 // characters of a path
	letters   = 26
)

// Below returns a path for an attempt that is requested under the context of a lock with a path.
// number tells the attempt from all others of its owner. It is written in lower-case letters, and
// ends with a capital one: no number is the beginning of another. So attempts that are not under
// each other have paths that are not. Where the number does not fit any more, the attempt has the
// path of its lock, and counts as under all attempts with that path.
func Below(path string, number int64) string {
	below := path
	for ; number >= letters; number /= letters {
		below += string(rune('a' + number%letters))
	}
	if below += string(rune('A' + number)); len(below) > longest {
		return path
	}
	return below
}

// NewAttempt names an attempt with a path. An owner's first lock has the path "". So have all
// attempts of an owner that the application has named.
func NewAttempt(path string) string {
	if path == "" {
		return rand.Text()
	}
	return rand.Text()[:random] + separator + path
}

// PathOf returns the path in an attempt's name.
func PathOf(attempt string) string {
	_, path, _ := strings.Cut(attempt, separator)
	return path
}

// Under reports whether a path equals another one, or is below it.
func Under(path, other string) bool { return strings.HasPrefix(path, other) }

// under reports whether a place in a queue was requested under the context of a hold of the same
// owner, or may have been.
func under(place, hold string) bool { return Under(PathOf(place), PathOf(hold)) }
