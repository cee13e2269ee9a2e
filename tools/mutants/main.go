// Command mutants proves that the tests of the rules can fail. A mutant breaks one rule; the test
// of that rule must then fail. A mutant that no test notices has survived, and the command fails.
//
//	scripts/mutants ./internal/session    the mutants of one package, or of several
//	scripts/mutants ./internal/...        of all below a folder
//	scripts/mutants                       all
//
// They stand in a mutants.txt beside the code that they break, each as one paragraph:
//
//	rule 4: a token from the clock alone     the broken rule, in words
//	@ queries/postgres TakeRow               where: folder or file of a query, and its name;
//	@ postgres/run.go engine.general         or a file and, where it helps, a function
//	- greatest(l.token + 1, dblock_now())    the text, in one line or in several
//	+ dblock_now()                           the new text; nothing, if this line is missing
//	! postgres TestATokenRises…              the package and the test that must fail
//
// Paths begin at the root. White space counts in no text. A text stands in its place once: a mutant
// that breaks several has a pair of - and + for each. In a query, the mutant breaks the statement
// in gen, which is the one that runs, in the words of each server. A test may be one of many:
// "sqlite TestBehaviour/SQLite/one sentence of the suite". Lines that begin with # between
// paragraphs are comments.
//
// The files of the tree remain unchanged (go build -overlay). Servers are those of
// DBLOCK_TEST_POSTGRES_DSN and its sisters. Each test first runs without any mutant, and must pass.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	word := flag.String("run", "", "only the mutants with this `text` in their rule, place or test")
	limit := flag.Duration("timeout", defaultLimit, "of one test; a test that hangs has noticed")
	flag.Parse()
	if err := mutate(*word, flag.Args(), runner{limit: *limit}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func mutate(word string, packages []string, r runner) (err error) {
	if r.root, err = filepath.Abs(".."); err != nil {
		return err
	}
	all, err := readAll(r.root, packages)
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if strings.Contains(strings.Join([]string{m.rule, m.file, m.part, m.pkg, m.test}, " "), word) {
			chosen = append(chosen, m)
		}
	}
	if r.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	results := r.tryAll(chosen)
	return report(results)
}

// report prints the score of each package and of all, and the mutants that were not caught.
func report(results []result) error {
	var left []result
	caught, total := map[string]int{}, map[string]int{}
	var lists []string
	for _, r := range results {
		if total[r.list]++; total[r.list] == 1 {
			lists = append(lists, r.list)
		}
		if r.verdict == caughtIt || r.verdict == hungOnIt {
			caught[r.list]++
		} else {
			left = append(left, r)
		}
	}
	for _, list := range lists {
		fmt.Printf("%s: %d of %d caught\n", list, caught[list], total[list])
	}
	for _, r := range left {
		fmt.Printf("%s  %v\n", r.verdict, r.mutant)
	}
	if fmt.Printf("%d of %d caught\n", len(results)-len(left), len(results)); len(left) > 0 || len(results) == 0 {
		return fmt.Errorf("%d mutants were not caught", len(left))
	}
	return nil
}
