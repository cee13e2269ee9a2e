package deadlock

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync/atomic"
)

// An attempt's name has at most 32 characters, the width of its columns.
const (
	separator = "."
	random    = 19 // characters, of 5 bits each, where a path follows
	step      = 3  // characters
	deepest   = 4  // steps
	steps     = 36 * 36 * 36
)

var lastStep atomic.Int64

// Below returns a path for an attempt that is requested under the context of a lock with a path.
// Attempts that are not under each other have different paths. Below the deepest level there is no
// room: there an attempt has the path of its lock, and counts as under all attempts with that path.
func Below(path string) string {
	if len(path) >= deepest*step {
		return path
	}
	return path + strconv.FormatInt(steps+lastStep.Add(1)%steps, 36)[1:]
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
