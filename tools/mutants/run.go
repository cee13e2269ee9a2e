package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	atOnce       = 2 // builds and tests
	defaultLimit = 2 * time.Minute
	moreSteps    = "DBLOCK_TEST_STEPS=1000000" // of internal/testing/runtest: some mutants show once in half a million
)

const (
	caughtIt = "caught"
	hungOnIt = "caught (hang)"
	survived = "SURVIVED"
	failed   = "ERROR" // it does not apply, does not compile, or its test did not run
)

type runner struct {
	root, dir string // of the tree, and for the files made here
	limit     time.Duration
}

type result struct {
	mutant
	verdict string
}

// tryAll tries each mutant, after the tests of each package without one.
func (r runner) tryAll(mutants []mutant) []result {
	var packages []string
	for _, m := range mutants {
		if !slices.Contains(packages, m.pkg) {
			packages = append(packages, m.pkg)
		}
	}
	sound := map[string]map[string]bool{} // by package and test
	for _, pkg := range packages {
		var tests []string
		for _, m := range mutants {
			if m.pkg == pkg && !slices.Contains(tests, m.test) {
				tests = append(tests, m.test)
			}
		}
		began := time.Now()
		passed, err := r.unbroken(pkg, tests)
		fmt.Printf("%-13s %s: %d of %d tests without a mutant (%.0fs)\n", "passed", pkg, len(passed), len(tests),
			time.Since(began).Seconds())
		if err != nil {
			fmt.Println(err)
		}
		sound[pkg] = passed
	}

	results := make([]result, len(mutants))
	var all sync.WaitGroup
	slots := make(chan int, atOnce)
	for i := range atOnce {
		slots <- i
	}
	for i, m := range mutants {
		slot := <-slots
		all.Go(func() {
			defer func() { slots <- slot }()
			began, verdict, err := time.Now(), failed, errors.New("the test does not pass without it")
			if sound[m.pkg][m.test] {
				verdict, err = r.try(m, filepath.Join(r.dir, fmt.Sprint(slot)))
			}
			results[i] = result{m, verdict}
			fmt.Printf("%-13s %v (%s %s, %.0fs)\n", verdict, m, m.pkg, m.test, time.Since(began).Seconds())
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	return results
}

// unbroken runs tests of a package as they are, and returns those that passed.
func (r runner) unbroken(pkg string, tests []string) (passed map[string]bool, err error) {
	binary := filepath.Join(r.dir, "unbroken.test")
	if err := r.build(pkg, binary); err != nil {
		return nil, err
	}
	patterns := make([]string, len(tests))
	for i, test := range tests {
		patterns[i] = pattern(test)
	}
	out, err := r.run(pkg, binary, strings.Join(patterns, "|"), 5*r.limit)
	passed = map[string]bool{}
	for _, test := range tests {
		name := strings.ReplaceAll(test, " ", "_")
		passed[test] = regexp.MustCompile(`--- PASS: ` + regexp.QuoteMeta(name) + ` \(`).Match(out)
		if !passed[test] {
			delete(passed, test)
			err = errors.Join(err, fmt.Errorf("%s %s: fails, is left out, or is not there", pkg, test))
		}
	}
	if err != nil {
		err = fmt.Errorf("%s%w", tail(out), err)
	}
	return passed, err
}

// try applies m in an overlay, and runs its test.
func (r runner) try(m mutant, base string) (verdict string, err error) {
	broken, err := m.apply(r.root)
	if err != nil {
		return failed, err
	}
	replaced := map[string]string{}
	for file, text := range broken {
		replaced[file] = fmt.Sprint(base, ".broken", len(replaced))
		if err := os.WriteFile(replaced[file], []byte(text), 0o600); err != nil {
			return failed, err
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return failed, err
	}
	if err := os.WriteFile(base+".json", overlay, 0o600); err != nil {
		return failed, err
	}
	if err := r.build(m.pkg, base+".test", "-overlay", base+".json"); err != nil {
		return failed, err
	}
	out, err := r.run(m.pkg, base+".test", pattern(m.test), r.limit, moreSteps)
	switch text := string(out); {
	case err == nil:
		return survived, nil
	case strings.Contains(text, "panic: test timed out after") || errors.Is(err, context.DeadlineExceeded):
		return hungOnIt, nil
	case strings.Contains(text, "--- FAIL: ") || strings.Contains(text, "panic: ") ||
		strings.Contains(text, "fatal error: "):
		return caughtIt, nil
	}
	return failed, fmt.Errorf("no test has failed: %w\n%s", err, tail(out))
}

func (r runner) build(pkg, binary string, flags ...string) error {
	build := exec.Command("go", append([]string{"test", "-c", "-ldflags=-s -w", "-o", binary}, flags...)...)
	build.Dir = filepath.Join(r.root, pkg) // which may be in a module of its own
	build.Env = append(os.Environ(), "GOWORK="+r.workspace(), "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("does not compile: %w\n%s", err, tail(out))
	}
	return nil
}

// workspace returns that of the root, whatever the caller's GOWORK.
func (r runner) workspace() string { return filepath.Join(r.root, "go.work") }

func (r runner) run(pkg, binary, pattern string, limit time.Duration, env ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	test := exec.CommandContext(ctx, binary, "-test.v", "-test.count=1", "-test.timeout="+limit.String(),
		"-test.run="+pattern)
	test.Dir = filepath.Join(r.root, pkg)
	// A sentence may stand in a list that scripts/test leaves out.
	test.Env = append(append(os.Environ(), "DBLOCK_TEST_ALL=1"), env...)
	test.WaitDelay = 10 * time.Second // a test may leave processes behind that keep its output open
	out, err := test.CombinedOutput()
	return out, errors.Join(err, ctx.Err())
}

// pattern returns go test's pattern for one test.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(strings.ReplaceAll(part, " ", "_")) + "$"
	}
	return strings.Join(parts, "/")
}

func tail(out []byte) string {
	const most = 2000
	return string(out[max(0, len(out)-most):])
}
