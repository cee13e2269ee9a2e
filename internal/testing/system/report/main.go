// Command report reads from its standard input what go test -json writes, and prints what a person
// wants of it: a line for each package that passed, every failure in full, why tests were left out,
// and what took longest. With -v it prints all that the tests said, as they say it.
//
// It judges nothing: whether the tests passed is the exit status of go test.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// slowest is how many packages, and how many tests, are listed.
const slowest = 10

func main() {
	verbose := flag.Bool("v", false, "print all that the tests said")
	module := flag.String("m", "", "a module path that lists leave out of the names of packages")
	flag.Parse()
	r := newReport(os.Stdout, *verbose, *module)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r.end()
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of what was built
	Test       string
	Elapsed    float64
	Output     string
}

// test is what is known of a test that has begun.
type test struct {
	name   string
	result string // "": it has not ended
	output []string
	parent bool // of tests within it, which tell what took long
}

// suite is a package.
type suite struct {
	tests  map[string]*test
	order  []*test
	output []string
}

// timed is something that took time.
type timed struct {
	name    string
	seconds float64
}

type report struct {
	out      io.Writer
	verbose  bool
	module   string
	suites   map[string]*suite
	packages []timed
	tests    []timed
	failed   []string
	left     map[string][]string // the tests that were left out, by reason
}

func newReport(out io.Writer, verbose bool, module string) *report {
	return &report{out: out, verbose: verbose, module: module, suites: make(map[string]*suite),
		left: make(map[string][]string)}
}

// read reads events to their end. What is no event is printed as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case line[0] != '{' || json.Unmarshal([]byte(line), &e) != nil || e.Action == "":
			fmt.Fprint(r.out, line)
		default:
			r.on(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) on(e event) {
	if e.Action == "build-output" || r.verbose && e.Action == "output" {
		fmt.Fprint(r.out, e.Output)
	}
	if e.Package == "" {
		return
	}
	s := r.suites[e.Package]
	if s == nil {
		s = &suite{tests: make(map[string]*test)}
		r.suites[e.Package] = s
	}
	if e.Test == "" {
		r.onPackage(s, e)
		return
	}
	t := s.tests[e.Test]
	if t == nil {
		t = &test{name: e.Test}
		s.tests[e.Test], s.order = t, append(s.order, t)
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
			if outer := s.tests[e.Test[:i]]; outer != nil {
				outer.parent = true
			}
		}
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.result = e.Action
		name := r.short(e.Package) + " " + e.Test
		if !t.parent {
			r.tests = append(r.tests, timed{name, e.Elapsed})
		}
		if e.Action == "skip" {
			why := reason(t.output)
			r.left[why] = append(r.left[why], name)
		}
		if e.Action != "fail" {
			t.output = nil
		}
	}
}

func (r *report) onPackage(s *suite, e event) {
	switch e.Action {
	case "output":
		s.output = append(s.output, e.Output)
	case "pass", "fail", "skip":
		r.packages = append(r.packages, timed{r.short(e.Package), e.Elapsed})
		if e.Action == "fail" {
			r.failure(e.Package, s)
		} else {
			r.closing(s)
		}
		delete(r.suites, e.Package)
	}
}

// failure prints all that is known of a package that failed: of its tests those that failed or
// never ended, each before the tests within it.
func (r *report) failure(path string, s *suite) {
	var failed []string // without those that failed for want of one within them
	for _, t := range s.order {
		if t.result != "fail" && t.result != "" {
			continue
		}
		if n := len(failed); n > 0 && strings.HasPrefix(t.name, failed[n-1]+"/") {
			failed = failed[:n-1]
		}
		failed = append(failed, t.name)
		if r.verbose {
			continue
		}
		heading := "--- FAIL: " + t.name + " (it did not end)\n"
		var said []string
		for _, line := range t.output {
			switch plain := strings.TrimLeft(line, " "); {
			case strings.HasPrefix(plain, "--- FAIL: "):
				heading = line
			case !strings.HasPrefix(line, "=== "):
				said = append(said, line)
			}
		}
		fmt.Fprint(r.out, heading, strings.Join(said, ""))
	}
	if len(failed) == 0 {
		r.failed = append(r.failed, r.short(path))
	}
	for _, name := range failed {
		r.failed = append(r.failed, r.short(path)+" "+name)
	}
	if !r.verbose {
		fmt.Fprint(r.out, strings.Join(s.output, ""))
	}
}

// closing prints the line that go test closes a package with. A package without tests has none that
// matters.
func (r *report) closing(s *suite) {
	for _, line := range s.output {
		if !r.verbose && strings.HasPrefix(line, "ok  \t") {
			fmt.Fprint(r.out, line)
		}
	}
}

// position is where a test says something.
var position = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// reason is what a test said last before it was skipped.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		if position.MatchString(line) {
			return strings.TrimSpace(position.ReplaceAllString(line, ""))
		}
	}
	return "no reason given"
}

// short is a package without the path of the module.
func (r *report) short(path string) string {
	if r.module == "" || path != r.module && !strings.HasPrefix(path, r.module+"/") {
		return path
	}
	return "." + strings.TrimPrefix(path, r.module)
}

// end prints what is known at the end of a run.
func (r *report) end() {
	for path, s := range r.suites { // go test ended before them
		r.failure(path, s)
	}
	if len(r.left) > 0 {
		fmt.Fprintln(r.out, "left out:")
	}
	for _, why := range slices.Sorted(maps.Keys(r.left)) {
		names := r.left[why]
		more := ""
		if len(names) > 1 {
			more = fmt.Sprintf(" and %d more", len(names)-1)
		}
		fmt.Fprintf(r.out, "    %s%s: %s\n", names[0], more, why)
	}
	r.longest("packages", r.packages)
	r.longest("tests", r.tests)
	if len(r.failed) > 0 {
		fmt.Fprintln(r.out, "failed:")
	}
	for _, name := range r.failed {
		fmt.Fprintln(r.out, "    "+name)
	}
}

func (r *report) longest(what string, all []timed) {
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	all = slices.DeleteFunc(all, func(t timed) bool { return t.seconds == 0 })
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(r.out, "the slowest %s:\n", what)
	for _, t := range all[:min(slowest, len(all))] {
		fmt.Fprintf(r.out, "%8.1fs  %s\n", t.seconds, t.name)
	}
}
