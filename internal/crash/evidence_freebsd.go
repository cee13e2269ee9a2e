package crash

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const mountedLocally = 0x1000 // MNT_LOCAL

// readBoot returns the time of the present boot, which changes when the clock is set: then files
// that were made before prove nothing.
func readBoot() (string, error) {
	at, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%06d", at.Sec, at.Usec), nil
}
