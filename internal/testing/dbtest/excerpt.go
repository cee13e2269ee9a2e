package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// excerptLines is how much of a log a failed test prints, of its first fullExcerpts logs. Of each
// further log it prints the last line: a test with ten processes must not print a hundred lines.
const (
	excerptLines = 10
	fullExcerpts = 2
)

// excerpts counts the long logs of each test.
var excerpts = struct {
	sync.Mutex
	of map[testing.TB]int
}{of: make(map[testing.TB]int)}

// Excerpt is the end of a log that a failed test prints. The whole log goes to a file, which the
// text names, in the folder DBLOCK_TEST_LOGS; default: dblock-test-logs in the temporary folder.
func Excerpt(t testing.TB, label, log string) string {
	t.Helper()
	log = strings.TrimSpace(log)
	if log == "" {
		return "wrote nothing"
	}
	lines := strings.Split(log, "\n")
	if len(lines) <= excerptLines {
		return "wrote:\n" + log
	}
	most := excerptLines
	excerpts.Lock()
	if excerpts.of[t]++; excerpts.of[t] > fullExcerpts {
		most = 1
	}
	excerpts.Unlock()
	end := strings.Join(lines[len(lines)-most:], "\n")
	file, err := writeLog(t.Name()+" "+label, log)
	if err != nil {
		return fmt.Sprintf("wrote %d lines, which could not be kept (%v), at last:\n%s", len(lines), err, end)
	}
	return fmt.Sprintf("wrote %d lines to %s, at last:\n%s", len(lines), file, end)
}

func writeLog(name, log string) (file string, err error) {
	folder := os.Getenv("DBLOCK_TEST_LOGS")
	if folder == "" {
		folder = filepath.Join(os.TempDir(), "dblock-test-logs")
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	name = strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' || r == os.PathSeparator {
			return '_'
		}
		return r
	}, name)
	f, err := os.CreateTemp(folder, name+"-*.log")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(log + "\n")
	if closed := f.Close(); err == nil {
		err = closed
	}
	return f.Name(), err
}
