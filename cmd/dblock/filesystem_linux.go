package main

import "golang.org/x/sys/unix"

// networks are the network file systems, by the numbers in statfs(2).
var networks = []struct {
	magic uint32
	name  string
}{
	{unix.NFS_SUPER_MAGIC, "NFS"},
	{unix.SMB_SUPER_MAGIC, "SMB"},
	{unix.CIFS_SUPER_MAGIC, "SMB (CIFS)"},
	{unix.SMB2_SUPER_MAGIC, "SMB 2"},
	{unix.V9FS_MAGIC, "9p"},
	{unix.AFS_SUPER_MAGIC, "AFS"},
	{unix.AFS_FS_MAGIC, "AFS"},
	{unix.CODA_SUPER_MAGIC, "Coda"},
	{unix.OCFS2_SUPER_MAGIC, "OCFS2"},
	{0x00c36400, "Ceph"},
	{0x01161970, "GFS2"},
	{0x0bd00bd0, "Lustre"},
	{0x47504653, "GPFS"},
	{0x786f4256, "a shared folder of VirtualBox"},
	{0x19830326, "BeeGFS"},
}

// fileSystemOf returns the file system of a folder.
func fileSystemOf(folder string) (fileSystem, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return fileSystem{}, err
	}
	return fileSystemBy(uint32(s.Type)), nil
}

// fileSystemBy judges by the number: FUSE has one number for all its file systems, sshfs among
// them.
func fileSystemBy(magic uint32) fileSystem {
	for _, n := range networks {
		if n.magic == magic {
			return fileSystem{n.name, isProblem}
		}
	}
	if magic == unix.FUSE_SUPER_MAGIC {
		return fileSystem{"FUSE", isUnknown}
	}
	return fileSystem{"a disk or memory of this machine", isOK}
}
