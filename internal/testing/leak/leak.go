// Package leak finds goroutines that tests left behind. Only tests import it. The modules of tests,
// adapters and programs use goleak; this module's requirements are those of its users.
package leak

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long goroutines may take to end. Only a leak waits for it.
const patience = 30 * time.Second

// usual are goroutines of the runtime, of package testing, and the main one.
var usual = regexp.MustCompile(`^goroutine 1 |created by (testing|runtime|os/signal)[./]`)

// Main runs the tests of a package: func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }.
func Main(m *testing.M) int {
	code := m.Run()
	if err := Find(nil); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Running returns the stacks of all goroutines but the caller's and the usual ones, by their names.
func Running() map[string]string {
	stacks := make([]byte, 1<<16)
	for runtime.Stack(stacks, true) == len(stacks) {
		stacks = make([]byte, 2*len(stacks))
	}
	running := make(map[string]string)
	for _, stack := range strings.Split(strings.TrimRight(string(stacks), "\x00\n"), "\n\n")[1:] {
		if name, _, _ := strings.Cut(stack, " ["); !usual.MatchString(stack) {
			running[name] = stack
		}
	}
	return running
}

// Find waits until no goroutine runs that was not Running before, and returns the stacks of those
// that do not end.
func Find(before map[string]string) error {
	for end, pause := time.Now().Add(patience), time.Millisecond; ; pause = min(2*pause, time.Second) {
		left := Running()
		maps.DeleteFunc(left, func(name, _ string) bool { return before[name] != "" })
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d goroutines were left behind:\n\n%s", len(left),
				strings.Join(slices.Sorted(maps.Values(left)), "\n\n"))
		}
		time.Sleep(pause)
	}
}
