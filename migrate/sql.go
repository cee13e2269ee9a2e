package migrate

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/dblock-go/dblock/migrations"
)

// SQL returns the migrations of an engine and some sets as plain SQL, without goose's annotations:
// for tools that keep a history of their own (Atlas, golang-migrate, Flyway). Default: Locks. With
// down it is what removes the tables. It has several statements; on PostgreSQL some have bodies in
// dollar quotes. A later build may add to it: compare what is at the end.
func SQL(engine string, down bool, sets ...Set) (string, error) {
	var text strings.Builder
	all := orLocks(sets)
	if down {
		all = slices.Clone(all)
		slices.Reverse(all)
	}
	for _, set := range all {
		files, err := migrations.FS(engine, set)
		if err != nil {
			return "", err
		}
		names, err := fs.Glob(files, "*.sql") // in order
		if err != nil {
			return "", err
		}
		if down {
			slices.Reverse(names)
		}
		for _, name := range names {
			file, err := fs.ReadFile(files, name)
			if err != nil {
				return "", err
			}
			text.WriteString(part(string(file), down))
		}
	}
	return text.String(), nil
}

// part is one direction of a migration.
func part(file string, down bool) string {
	up, back, _ := strings.Cut(file, "-- +goose Down")
	if down {
		up = back
	}
	var lines []string
	for line := range strings.Lines(up) {
		if !strings.HasPrefix(line, "-- +goose") {
			lines = append(lines, line)
		}
	}
	return strings.TrimLeft(strings.Join(lines, ""), "\n")
}
