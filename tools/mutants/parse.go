package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one paragraph of a mutants.txt; the package comment has the grammar.
type mutant struct {
	list  string // the folder of its mutants.txt, from the root
	line  int    // its line there
	rule  string
	file  string // the file it breaks, from the root
	part  string // of the file: the query, or the function ("" is all of it)
	edits []edit
	pkg   string // of the test, from the root
	test  string // words of a sentence stand apart, as in internal/testing/suite
}

type edit struct{ old, new string }

func (m mutant) String() string {
	return fmt.Sprintf("%s/mutants.txt:%d: %s", m.list, m.line, m.rule)
}

// readAll reads every mutants.txt below root of a folder that one of packages names: "./mysql", or
// "./internal/..." with all below it. Without packages it reads all.
func readAll(root string, packages []string) (all []mutant, err error) {
	unused := slices.Clone(packages)
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.Name() != "mutants.txt" {
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		wants := func(p string) bool {
			above, below := strings.CutSuffix(path.Clean(p), "...")
			return path.Clean(above) == folder || below && strings.HasPrefix("./"+folder, "./"+path.Clean(above)+"/") ||
				below && path.Clean(above) == "."
		}
		if len(packages) > 0 && !slices.ContainsFunc(packages, wants) {
			return nil
		}
		unused = slices.DeleteFunc(unused, wants)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		mutants, err := parse(folder, string(text))
		all = append(all, mutants...)
		return err
	})
	if err == nil && len(unused) > 0 {
		err = fmt.Errorf("no mutants.txt in %s", strings.Join(unused, ", "))
	}
	return all, err
}

func parse(folder, text string) (mutants []mutant, err error) {
	var m *mutant
	var last byte
	for i, line := range strings.Split(text, "\n") {
		wrong := func(what string) error { return fmt.Errorf("%s/mutants.txt:%d: %s: %s", folder, i+1, what, line) }
		line = strings.TrimRight(line, " \t")
		if line == "" {
			if m != nil && last != '!' {
				return nil, wrong("the paragraph above lacks its test")
			}
			m = nil
			continue
		}
		key, value := line[0], strings.TrimPrefix(line[1:], " ")
		switch {
		case key == '#' && m == nil:
			continue
		case m == nil:
			mutants = append(mutants, mutant{list: folder, line: i + 1, rule: line})
			m, key = &mutants[len(mutants)-1], ' '
		case key == '@' && last == ' ':
			m.file, m.part, _ = strings.Cut(value, " ")
			if within, statement := strings.CutPrefix(m.file, "queries/"); statement {
				m.file = "gen/" + strings.TrimSuffix(within, ".sql") + "db" // a folder
			}
		case key == '-' && last == '-':
			m.edits[len(m.edits)-1].old += "\n" + value
		case key == '-' && last != ' ' && last != '!':
			m.edits = append(m.edits, edit{old: value})
		case key == '+' && last == '-':
			m.edits[len(m.edits)-1].new = value
		case key == '+' && last == '+':
			m.edits[len(m.edits)-1].new += "\n" + value
		case key == '!' && (last == '-' || last == '+'):
			m.pkg, m.test, _ = strings.Cut(value, " ")
		default:
			return nil, wrong("not in its place")
		}
		last = key
	}
	if m != nil && last != '!' {
		return nil, fmt.Errorf("%v: it lacks its test", m)
	}
	return mutants, nil
}
