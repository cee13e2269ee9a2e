//go:build !linux

package session

import "time"

// Boottime returns the larger of the times that the monotonic and the wall clock have counted: the
// monotonic clock may stop while the machine sleeps, and the wall clock may be set back.
func Boottime() time.Duration { return elapsed() }
