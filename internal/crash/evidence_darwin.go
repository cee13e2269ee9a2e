package crash

import "syscall"

const mountedLocally = 0x1000 // MNT_LOCAL

// readBoot returns the id of the present boot.
func readBoot() (string, error) { return syscall.Sysctl("kern.bootsessionuuid") }
