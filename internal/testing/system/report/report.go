package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slowest is how many packages, and how many tests, are listed.
const slowest = 10

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
	blamed bool // a test within it has failed
	suite  bool // it has said how many sentences it has
}

// suite is a package.
type suite struct {
	tests  map[string]*test
	order  []*test
	output []string
	ended  int // tests without tests within them

	sentences, ofSentences int // of suites that say how many sentences they have: those that have ended, and all
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
	number   int    // of packages
	repeat   string // the command that repeats a test
	suites   map[string]*suite
	packages []timed
	tests    []timed
	failed   []string            // with the commands that repeat them
	left     map[string][]string // the tests that were left out, by reason
}

func newReport(out io.Writer, verbose bool, module string, number int, repeat string) *report {
	return &report{out: out, verbose: verbose, module: module, number: number, repeat: repeat,
		suites: make(map[string]*suite), left: make(map[string][]string)}
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
		if outer := s.outer(t); outer != nil {
			outer.parent = true
		}
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
		if n := announced.FindStringSubmatch(e.Output); n != nil {
			sentences, _ := strconv.Atoi(n[1])
			s.ofSentences, t.suite = s.ofSentences+sentences, true
		}
	case "pass", "fail", "skip":
		r.onEnd(s, t, e)
	}
}

// announced is how a suite says how many sentences it has.
var announced = regexp.MustCompile(`^sentences: (\d+)\n`)

// outer returns the parent of a subtest, nil if there is none. The name of a parent may contain
// slashes, which go test does not escape.
func (s *suite) outer(t *test) *test {
	for name := t.name; ; {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return nil
		}
		if name = name[:i]; s.tests[name] != nil {
			return s.tests[name]
		}
	}
}

func (r *report) onEnd(s *suite, t *test, e event) {
	t.result = e.Action
	outer := s.outer(t)
	if outer != nil && outer.suite {
		s.sentences++
	}
	name := r.short(e.Package) + " " + t.name
	if !t.parent {
		s.ended++
		r.tests = append(r.tests, timed{name, e.Elapsed})
	}
	if e.Action == "skip" {
		why := reason(t.output)
		r.left[why] = append(r.left[why], name)
	}
	if e.Action == "fail" {
		if t.blamed {
			r.said(t) // beside the failures within it
		} else {
			r.failure(e.Package, t)
		}
		if outer != nil {
			outer.blamed = true
		}
	}
	t.output = nil
}

func (r *report) onPackage(s *suite, e event) {
	switch e.Action {
	case "output":
		s.output = append(s.output, e.Output)
	case "pass", "fail", "skip":
		r.packages = append(r.packages, timed{r.short(e.Package), e.Elapsed})
		if e.Action == "fail" {
			r.rest(e.Package, s)
		} else {
			r.closing(s)
		}
		delete(r.suites, e.Package)
	}
}

// failure prints what a test said that has failed by itself, or that never ended, and the command
// that repeats it.
func (r *report) failure(path string, t *test) {
	name := r.short(path) + " " + t.name
	command := fmt.Sprintf("%s -run '%s' %s", r.repeat, pattern(t.name), r.short(path))
	r.failed = append(r.failed, name+"\n        "+command)
	if !r.verbose {
		heading, said := t.said()
		fmt.Fprint(r.out, heading, said, "    to repeat it: ", command, "\n")
	}
}

// said prints what a test said beside the failures within it.
func (r *report) said(t *test) {
	if heading, said := t.said(); said != "" && !r.verbose {
		fmt.Fprint(r.out, heading, said)
	}
}

// said returns the line that a test ended with, and what it said itself.
func (t *test) said() (heading, said string) {
	heading = "--- FAIL: " + t.name + " (it did not end)\n"
	for _, line := range t.output {
		switch plain := strings.TrimLeft(line, " "); {
		case strings.HasPrefix(plain, "--- FAIL: "):
			heading = plain
		case !strings.HasPrefix(line, "=== ") && !announced.MatchString(line):
			said += line
		}
	}
	return heading, said
}

// pattern is what -run wants for one test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.ReplaceAll(strings.Join(parts, "/"), "'", ".") // of which a shell would make something else
}

// rest prints what else is known of a package that failed: the tests that never ended, and what it
// said itself.
func (r *report) rest(path string, s *suite) {
	before := len(r.failed)
	var open []*test // without those that only wait for one within them
	for _, t := range s.order {
		if t.result != "" {
			continue
		}
		if n := len(open); n > 0 && strings.HasPrefix(t.name, open[n-1].name+"/") {
			open = open[:n-1]
		}
		open = append(open, t)
	}
	for _, t := range open {
		r.failure(path, t)
	}
	of := r.short(path)
	if before == len(r.failed) && !slices.ContainsFunc(r.failed, func(name string) bool {
		return strings.HasPrefix(name, of+" ")
	}) {
		r.failed = append(r.failed, of)
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

// progress prints where the run is.
func (r *report) progress(since time.Duration) {
	var running []string
	for _, path := range slices.Sorted(maps.Keys(r.suites)) {
		s := r.suites[path]
		if len(s.order) == 0 {
			continue
		}
		ended := fmt.Sprintf("%s %d", r.short(path), s.ended)
		if s.ofSentences > 0 {
			ended += fmt.Sprintf(" (%d of %d sentences)", s.sentences, s.ofSentences)
		}
		running = append(running, ended)
	}
	what := "the compiler is at work"
	if len(running) > 0 {
		what = "tests that have ended in the others: " + strings.Join(running, ", ")
	}
	fmt.Fprintf(r.out, "== %s: %d of %d packages have ended, %d failures; %s\n", since.Round(time.Second),
		len(r.packages), max(r.number, len(r.packages)), len(r.failed), what)
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
		r.rest(path, s)
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
