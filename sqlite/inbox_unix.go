//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// inbox receives notices of other processes of the machine: a datagram socket in a folder beside
// the database, DATABASE-dblock/SESSION, which containers share with the file. Exactly the users
// that can write to the file can write to the inbox.
type inbox struct {
	socket *net.UnixConn
	path   string
	made   os.FileInfo
}

// openInbox opens the inbox of a session. It removes the inboxes of dead processes. The folder is
// removed with the last inbox.
func openInbox(database, session string) (b *inbox, err error) {
	path, err := inboxPath(database, session)
	if err != nil {
		return nil, err
	}
	folder := filepath.Dir(path)
	info, err := os.Stat(database)
	if err != nil {
		return nil, err
	}
	for range 3 { // another process may remove the folder as soon as it is made
		if err = makeFolder(folder, info); err != nil {
			return nil, err
		}
		if b, err = listenAt(path, info); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	takeAwayDead(folder)
	return b, nil
}

// makeHostFolder makes the folder beside the database.
func makeHostFolder(database string) error {
	info, err := os.Stat(database)
	if err != nil {
		return err
	}
	return makeFolder(database+"-dblock", info)
}

func inboxPath(database, session string) (string, error) {
	if database == "" || !filepath.IsLocal(session) || session == "." || filepath.Base(session) != session {
		return "", fmt.Errorf("no socket for session %q beside %q", session, database)
	}
	return filepath.Join(database+"-dblock", session), nil
}

// makeFolder makes the folder with the permissions of the database, as SQLite does for its own
// files.
func makeFolder(folder string, database fs.FileInfo) error {
	err := os.Mkdir(folder, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	write := database.Mode().Perm() & 0o222
	return handTo(folder, database, write|write<<1|write>>1)
}

// handTo gives a file the group of the database, its owner if this process is root, and the mode.
func handTo(path string, database fs.FileInfo, mode fs.FileMode) error {
	if of, ok := database.Sys().(*syscall.Stat_t); ok {
		owner := -1
		if os.Geteuid() == 0 {
			owner = int(of.Uid)
		}
		_ = os.Chown(path, owner, int(of.Gid))
	}
	return os.Chmod(path, mode)
}

func listenAt(path string, database fs.FileInfo) (*inbox, error) {
	name, done, err := address(path)
	if err != nil {
		return nil, err
	}
	defer done()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name})
	if err != nil {
		return nil, err
	}
	b := &inbox{socket: socket, path: path}
	write := database.Mode().Perm() & 0o222
	if err = handTo(path, database, write|write<<1); err == nil {
		b.made, err = os.Lstat(path)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// address returns a name for a path that fits into the address of a socket (108 bytes on Linux),
// valid until done is called. On Linux, a longer path is named through the descriptor of its
// folder.
func address(path string) (name string, done func(), err error) {
	if len(path) < len(syscall.RawSockaddrUnix{}.Path) {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("%s is too long for the address of a socket", path)
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)), func() { _ = folder.Close() }, nil
}

// takeAwayDead removes the sockets that no process has open. A socket that is being made may look
// dead. Its listener then finds that its inbox no longer stands.
func takeAwayDead(folder string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		name, done, err := address(path)
		if err != nil || entry.Type() != fs.ModeSocket {
			continue
		}
		probe, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: name})
		done()
		if err == nil {
			_ = probe.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// stands reports whether other processes still find the inbox.
func (b *inbox) stands() bool {
	info, err := os.Lstat(b.path)
	return err == nil && os.SameFile(b.made, info)
}

// read calls heard with each notice until the inbox is closed.
func (b *inbox) read(heard func(n notice)) {
	text := make([]byte, 512)
	for {
		n, err := b.socket.Read(text)
		if err != nil {
			return
		}
		heard(readNotice(text[:n]))
	}
}

func (b *inbox) close() {
	_ = b.socket.Close()
	if b.made == nil || b.stands() {
		_ = os.Remove(b.path)
	}
	_ = os.Remove(filepath.Dir(b.path)) // fails while the folder has other inboxes
}

// outlet is the socket from which this process sends. It stays open.
var outlet = sync.OnceValues(func() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	syscall.CloseOnExec(fd)
	return fd, syscall.SetNonblock(fd, true)
})

// post puts a notice into the inbox of its session. It never waits: it fails if the inbox is full
// or missing.
func post(database string, n notice) error {
	path, err := inboxPath(database, n.session)
	if err != nil {
		return err
	}
	from, err := outlet()
	if err != nil {
		return err
	}
	to, done, err := address(path)
	if err != nil {
		return err
	}
	defer done()
	return syscall.Sendto(from, n.text(), 0, &syscall.SockaddrUnix{Name: to})
}
