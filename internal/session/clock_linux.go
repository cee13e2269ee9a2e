package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime returns the kernel's CLOCK_BOOTTIME, which is monotonic. It counts the time for which
// the machine was suspended, unlike Go's own monotonic clock (golang/go#24595).
func Boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return elapsed()
	}
	return time.Duration(t.Nano())
}
