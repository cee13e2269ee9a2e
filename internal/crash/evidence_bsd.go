//go:build darwin || freebsd

package crash

import (
	"bytes"
	"syscall"
)

// locals are the types of the file systems in which a lock is seen by all processes that can see
// the file.
var locals = map[string]bool{"apfs": true, "hfs": true, "ufs": true, "zfs": true, "tmpfs": true}

func local(in *syscall.Statfs_t) bool {
	var name []byte
	for _, c := range in.Fstypename {
		name = append(name, byte(c))
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	return locals[string(name)] && in.Flags&mountedLocally != 0
}
