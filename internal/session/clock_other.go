//go:build !linux

package session

import "time"

// Boottime is the larger of what the monotonic and the wall clock say has passed: the monotonic
// clock may stand still while the machine sleeps, and the wall clock may be set back.
func Boottime() time.Duration { return elapsed() }
