package crash

import (
	"os"
	"strings"
	"syscall"
)

// locals are the types of the file systems in which a lock is seen by all processes that can see
// the file, and only while this kernel runs, and in which a copy has another device or inode:
// statfs(2) and linux/magic.h list them. On bcachefs a snapshot has both of the original.
var locals = map[uint32]bool{
	0x01021994: true, // tmpfs
	0x0000ef53: true, // ext2, ext3, ext4
	0x58465342: true, // xfs
	0x9123683e: true, // btrfs
	0xf2f52010: true, // f2fs
	0x2fc12fc1: true, // zfs
	0x794c7630: true, // overlayfs
}

func local(in *syscall.Statfs_t) bool { return locals[uint32(in.Type)] }

// readBoot returns the id of the present boot. It is the same in all containers of the machine.
func readBoot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}
