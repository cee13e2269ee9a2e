// Command mutants proves that the tests of the rules can fail: it breaks one rule at a time in a
// copy of the tree, runs the test that watches over it, and reports each break that the test did
// not notice.
//
//	scripts/mutants [WORD]    only the mutants whose line contains WORD
//
// The servers are those of DBLOCK_TEST_POSTGRES_DSN and its sisters; a mutant whose server is
// missing is an error.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// list holds the mutants, five lines each: what is broken; the file; the text; what it becomes; the
// package and the test. Blank lines stand between them. "\n" and "\t" in a text are a line break
// and a tab.
//
//go:embed mutants.txt
var list string

type mutant struct{ rule, file, old, new, pkg, test string }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	mutants, err := parse()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyTree(dir); err != nil {
		return err
	}
	survivors, tried := 0, 0
	for _, m := range mutants {
		if len(words) > 0 && !strings.Contains(m.rule+m.file+m.pkg+m.test, words[0]) {
			continue
		}
		tried++
		verdict, err := m.try(dir)
		if err != nil {
			verdict = "ERROR"
			fmt.Fprintf(os.Stderr, "%s: %v\n", m.rule, err)
		}
		if verdict != "caught" {
			survivors++
		}
		fmt.Printf("%-9s %s (%s %s)\n", verdict, m.rule, m.pkg, m.test)
	}
	if fmt.Printf("%d mutants, %d not caught\n", tried, survivors); survivors > 0 || tried == 0 {
		return fmt.Errorf("the tests do not watch over every rule")
	}
	return nil
}

func parse() (mutants []mutant, err error) {
	unescape := strings.NewReplacer(`\n`, "\n", `\t`, "\t")
	for block := range strings.SplitSeq(strings.TrimSpace(list), "\n\n") {
		lines := strings.Split(block, "\n")
		if len(lines) != 5 {
			return nil, fmt.Errorf("mutants.txt: want 5 lines:\n%s", block)
		}
		pkg, test, _ := strings.Cut(lines[4], " ")
		mutants = append(mutants, mutant{lines[0], lines[1], unescape.Replace(lines[2]), unescape.Replace(lines[3]), pkg, test})
	}
	return mutants, nil
}

// copyTree copies what git knows, from the folder above tools.
func copyTree(dir string) error {
	script := `cd .. && git ls-files -z --cached --others --exclude-standard | xargs -0 tar -c | tar -x -C "$0"`
	out, err := exec.Command("sh", "-c", script, dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copying the tree: %w\n%s", err, out)
	}
	return nil
}

func (m mutant) try(dir string) (verdict string, err error) {
	file := filepath.Join(dir, m.file)
	whole, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	broken := strings.ReplaceAll(string(whole), m.old, m.new)
	if broken == string(whole) {
		return "", fmt.Errorf("%s does not contain %q any more", m.file, m.old)
	}
	if err := os.WriteFile(file, []byte(broken), 0o644); err != nil {
		return "", err
	}
	defer os.WriteFile(file, whole, 0o644)
	binary := filepath.Join(dir, "mutant.test")
	build := exec.Command("go", "test", "-trimpath", "-vet=off", "-ldflags=-s -w", "-c", "-o", binary, ".")
	build.Dir = filepath.Join(dir, m.pkg) // which may be in a module of its own
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("does not compile:\n%s", out)
	}
	test := exec.Command(binary, "-test.timeout=2m", "-test.v", "-test.run", pattern(m.test))
	test.Dir = filepath.Join(dir, m.pkg)
	test.Env = append(os.Environ(), "DBLOCK_TEST_STEPS=4000000") // internal/runtest: a mutant may show once in half a million steps
	out, err := test.CombinedOutput()
	switch {
	case strings.Contains(string(out), "--- SKIP") || strings.Contains(string(out), "no tests to run"):
		return "", fmt.Errorf("the test did not run:\n%s", out)
	case err == nil:
		return "SURVIVED", nil
	}
	return "caught", nil
}

// pattern is the test of that name, or of a suite the tests whose names begin so.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + part
		if i == 0 || i < len(parts)-1 {
			parts[i] += "$"
		}
	}
	return strings.Join(parts, "/")
}
