// Package crash proves that a process of this host has ended, for the sessions that it had in a
// database.
//
// A process makes a file for each of its sessions, in a folder that the processes of the host
// share, and locks it with flock(2). The kernel releases that lock when the last descriptor of the
// open file is closed: at the end of the process, whatever ended it, and not before. A process that
// is stopped, swapped out or cut off from the database keeps the lock. A lost connection proves
// nothing of that kind, and neither does a process number, which is used again.
//
// # Evidence
//
// A session is dead if its file can be locked by another process, and all of this holds:
//
//   - The file belongs to this user. Others can write what they like.
//   - It is in a file system of this machine, by its type: the kernel of another machine may hold a
//     lock that is not seen here (NFS, SMB, 9p, FUSE).
//   - It names its session, and the present boot of this machine. A file of an earlier boot, or of
//     another machine, says nothing of the processes that run now.
//   - It names its own device and inode, so it is no copy. The number of an inode is not used again
//     while a process has the file open. So a file with the right number is the file that the
//     process has locked.
//
// Everything else is unknown, as is any error: then the lease of the session decides.
package crash
