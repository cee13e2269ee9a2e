package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// most is how many rows a table has.
const most = 25

// row is a line of a table.
type row struct {
	what  string
	spent time.Duration
}

// whole is the run as its script saw it: how long it took, and what the script's children have
// spent, the servers among them.
type whole struct{ Wall, CPU time.Duration }

// show prints the tables of a folder.
func show(out io.Writer, folder string) error {
	var total whole // with the servers, which have ended
	packages, err1 := readAll[spent](folder, "*_.json")
	servers, err2 := readAll[spent](folder, "server_*.json")
	if err := errors.Join(err1, err2, read(filepath.Join(folder, "whole.json"), &total)); err != nil {
		return err
	}
	var tests, user, kernel time.Duration
	var byPackage, rows []row
	for _, s := range packages {
		tests, user, kernel = tests+s.User+s.Kernel, user+s.User, kernel+s.Kernel
		byPackage = append(byPackage, row{fmt.Sprintf("%s (kernel %.1f, took %.1f)", s.Package, s.Kernel.Seconds(),
			s.Wall.Seconds()), s.User + s.Kernel})
	}
	all, compiled := total.CPU, total.CPU-tests
	for _, s := range servers {
		compiled -= s.User + s.Kernel
		rows = append(rows, row{fmt.Sprintf("%s's server (kernel %.1f)", s.Package, s.Kernel.Seconds()),
			s.User + s.Kernel})
	}
	available := total.Wall * time.Duration(runtime.NumCPU())
	rows = append(rows,
		row{"compiler, linker, go, downloads, unpacking", compiled},
		row{fmt.Sprintf("test binaries (kernel %.1f)", kernel.Seconds()), tests},
		row{"idle: all that runs waits", available - all})
	fmt.Fprintf(out, "processor time: %.1fs of %.1fs that %d processors had in %.1fs\n", all.Seconds(),
		available.Seconds(), runtime.NumCPU(), total.Wall.Seconds())
	table(out, "by what spends it", rows)
	table(out, "by package, servers apart", byPackage)
	return profiles(out, folder)
}

// profiles prints what the profiles of the test binaries tell: the tests that have the most samples
// and the kinds of code.
func profiles(out io.Writer, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*_.pprof"))
	if err != nil {
		return err
	}
	byTest, byCode := map[string]time.Duration{}, map[string]time.Duration{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		p, err := profile.Parse(f)
		_ = f.Close()
		if err != nil {
			continue // of a binary that was killed
		}
		for _, s := range p.Sample {
			d := time.Duration(s.Value[1])
			byCode[code(s)] += d
			if test := s.Label["test"]; len(test) > 0 {
				byTest[test[0]] += d
			}
		}
	}
	table(out, "of the profiles of the test binaries, by what the code is", rowsOf(byCode))
	table(out, "of these, by test with a database of its own", rowsOf(byTest))
	return nil
}

// kinds of code, of which the first that has a frame of the sample counts.
var kinds = []struct {
	what   string
	frames *regexp.Regexp
	leaf   bool
}{
	{"race detector", regexp.MustCompile(`^(runtime\.race|__tsan|racecall|runtime\._ExternalCode|_ExternalCode|__sanitizer)`), true},
	{"system calls", regexp.MustCompile(`^(internal/runtime/syscall|runtime\.futex|runtime\.epoll|syscall\.)`), true},
	{"garbage collector", regexp.MustCompile(`^runtime\.(gc|bgsweep|bgscavenge|scan|mark)`), false},
	{"scheduler", regexp.MustCompile(`^runtime\.(schedule|mcall|park_m|findRunnable|mstart)`), false},
	{"SQLite", regexp.MustCompile(`^modernc\.org/`), false},
	{"goose", regexp.MustCompile(`^github\.com/pressly/`), false},
	{"crypto", regexp.MustCompile(`^crypto/`), false},
	{"drivers of databases", regexp.MustCompile(`^(github\.com/jackc|github\.com/go-sql-driver|database/sql)`), false},
	{"dblock", regexp.MustCompile(`^github\.com/dblock-go/`), false},
}

func code(s *profile.Sample) string {
	for _, k := range kinds {
		for i, l := range s.Location {
			if i > 0 && k.leaf {
				break
			}
			for _, line := range l.Line {
				if line.Function != nil && k.frames.MatchString(line.Function.Name) {
					return k.what
				}
			}
		}
	}
	return "other"
}

func rowsOf(m map[string]time.Duration) (rows []row) {
	for what, d := range m {
		rows = append(rows, row{what, d})
	}
	return rows
}

func table(out io.Writer, title string, rows []row) {
	fmt.Fprintf(out, "%s, in seconds:\n", title)
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.spent, a.spent), strings.Compare(a.what, b.what))
	})
	for _, r := range rows[:min(most, len(rows))] {
		fmt.Fprintf(out, "%8.1f  %s\n", r.spent.Seconds(), r.what)
	}
}

func readAll[T any](folder, pattern string) (all []T, err error) {
	files, err := filepath.Glob(filepath.Join(folder, pattern))
	for _, file := range files {
		var v T
		err = errors.Join(err, read(file, &v))
		all = append(all, v)
	}
	return all, err
}

func read(file string, v any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
