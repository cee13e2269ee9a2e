//go:build unix

package fault

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dblock-go/dblock/internal/crash"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
)

// Bugs in what a client makes of the files of its host.
const (
	bugTakesCopies  = "takes a copy of a file for the file that the process has locked"
	bugForgetsProof = "removes the proof of an end before the database has been told"
)

// careless is an engine of a client that has one of these bugs, or the engine itself.
func (a *actor) careless(b driver.Backend) driver.Backend {
	switch a.config.Bug {
	case bugTakesCopies:
		return forger{b, a.config.Folder}
	case bugForgetsProof:
		return fakedb.Hooked(b, func(ctx context.Context, c *fakedb.Call) error {
			if c.Method == "Bury" {
				_ = os.Remove(aliveFile(a.config.Folder, c.Session))
			}
			return c.Do(ctx)
		})
	}
	return b
}

// forger writes into each copy that it is no copy, before its client looks: so the client judges as
// one that does not compare device and inode.
type forger struct {
	driver.Backend
	folder crash.Folder
}

func (f forger) HostFolder(create bool) (path string, ok bool) {
	for _, session := range aliveSessions(f.folder) {
		forge(aliveFile(f.folder, session))
	}
	return f.Backend.HostFolder(create)
}

// forge does nothing to a file that a process has locked.
func forge(path string) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer file.Close()
	text, node := evidenceIn(file)
	if syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil || strings.HasSuffix(text, node) {
		return
	}
	before, _, found := strings.Cut(text, "device ")
	if found && file.Truncate(0) == nil {
		_, _ = file.WriteAt([]byte(before+node), 0)
	}
}

const aliveSuffix = ".alive"

func aliveFile(folder crash.Folder, session string) string {
	return filepath.Join(string(folder), session+aliveSuffix)
}

// aliveSessions are those that have a file.
func aliveSessions(folder crash.Folder) (sessions []string) {
	files, _ := os.ReadDir(string(folder))
	for _, file := range files {
		if session, is := strings.CutSuffix(file.Name(), aliveSuffix); is {
			sessions = append(sessions, session)
		}
	}
	return sessions
}

// evidenceIn returns the text of a session's file, and what that text ends with if the file is no
// copy.
func evidenceIn(file *os.File) (text, node string) {
	b := make([]byte, 4096)
	n, _ := file.ReadAt(b, 0)
	info, err := file.Stat()
	if err != nil {
		return "", ""
	}
	is := info.Sys().(*syscall.Stat_t)
	return string(b[:n]), fmt.Sprintf("device %d\ninode %d\n", is.Dev, is.Ino)
}
