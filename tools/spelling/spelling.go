// Package spelling writes the statements that sqlc has generated in the words of each server. sqlc
// reads one text of a query; servers differ in their clocks, their locks and their functions, and
// connections in their encodings. A statement that is spelled when it is generated is not rewritten
// while it runs.
//
// A part for which a server has other words, and that no statement has, is an error: the statement
// has changed, and the words with it would be lost.
package spelling

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Folder has the files of a package of gen, by their names.
type Folder map[string]string

// folders are the packages with words of servers.
var folders = map[string]struct {
	spell   func(Folder) (Folder, error)
	missing func(Folder) error
}{
	"mysqldb":    {mysql, missing},
	"postgresdb": {postgres, func(Folder) error { return nil }},
}

// Spell returns the files of a package with the statements of each server. Files that sqlc has
// written, and those that Spell has returned, have the same result.
func Spell(name string, files Folder) (Folder, error) {
	if f, spelled := folders[name]; spelled {
		return f.spell(files)
	}
	return files, nil
}

// Read returns the files of a package.
func Read(dir string) (Folder, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	files := Folder{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[filepath.Base(path)] = string(text)
	}
	return files, err
}

// Write spells the packages of gen.
func Write(gen string) error {
	for name := range folders {
		files, err := Read(filepath.Join(gen, name))
		if err != nil {
			return err
		}
		if err := folders[name].missing(files); err != nil {
			return fmt.Errorf("gen/%s: %w", name, err)
		}
		spelled, err := Spell(name, files)
		if err != nil {
			return err
		}
		for file, text := range spelled {
			if err := os.WriteFile(filepath.Join(gen, name, file), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// query is a statement: the constant that has it, and its text.
type query struct{ constant, text string }

var constants = regexp.MustCompile("(?s)const (\\w+) = `(-- name: [^`]*)`")

// queries returns the statements of a package, in the order of their files.
func (f Folder) queries() (list []query) {
	for _, file := range slices.Sorted(maps.Keys(f)) {
		if strings.HasSuffix(file, ".sql.go") {
			for _, found := range constants.FindAllStringSubmatch(f[file], -1) {
				list = append(list, query{found[1], found[2]})
			}
		}
	}
	return list
}
