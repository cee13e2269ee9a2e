// Package backoff has the pauses of loops that fail again and again.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Pause returns the pause after so many failures in a row. It doubles with each of them, from first
// to longest, and has jitter: at least the half of that. Only a success of the work itself resets
// the count.
func Pause(failures int, first, longest time.Duration) time.Duration {
	d := longest
	if n := max(failures, 1) - 1; n < 40 && first <= longest>>n {
		d = first << n
	}
	return d/2 + rand.N(d/2+1)
}
