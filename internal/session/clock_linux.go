package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime is the kernel's CLOCK_BOOTTIME: monotonic, and it counts the time that the machine was
// suspended, which Go's own monotonic clock leaves out (golang/go#24595).
func Boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return elapsed()
	}
	return time.Duration(t.Nano())
}
