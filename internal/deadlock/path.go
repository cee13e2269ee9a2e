package deadlock

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync/atomic"
)

// An attempt's name has at most 32 characters, which is what the columns for it have room for.
const (
	separator = "."
	random    = 19 // characters, of 5 bits each, where a path follows
	step      = 3  // characters
	deepest   = 4  // steps
	steps     = 36 * 36 * 36
)

var lastStep atomic.Int64

// Below returns a path for an attempt that is asked for under the context of what has a path.
// Attempts that are not under each other have different paths. Below the deepest there is no room:
// there an attempt shares the path of what it is under, and counts as under all that have that.
func Below(path string) string {
	if len(path) >= deepest*step {
		return path
	}
	return path + strconv.FormatInt(steps+lastStep.Add(1)%steps, 36)[1:]
}

// NewAttempt names an attempt with a path. An owner's first lock has the path "". So have all
// attempts of an owner that is not known by contexts.
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

// Under reports whether a path is another one, or below it.
func Under(path, other string) bool { return strings.HasPrefix(path, other) }

// under reports whether a place in a queue was asked for under the context of a hold of the same
// owner, or may have been.
func under(place, hold string) bool { return Under(PathOf(place), PathOf(hold)) }
