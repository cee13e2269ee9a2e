package migrations

import (
	"io/fs"
	"slices"
	"strings"
)

// SQL returns the migrations of an engine and some sets as plain SQL, without goose's annotations:
// for tools that keep a history of their own (Atlas, golang-migrate, Flyway). Default: Locks. With
// down it removes the tables. The text has several statements; on PostgreSQL some have bodies in
// dollar quotes. A later build only adds to its end.
func SQL(engine Engine, down bool, sets ...Set) (string, error) {
	if len(sets) == 0 {
		sets = []Set{Locks}
	}
	var parts []string
	for _, set := range sets {
		files, err := FS(engine, set)
		if err != nil {
			return "", err
		}
		names, err := fs.Glob(files, "*.sql") // in order
		if err != nil {
			return "", err
		}
		for _, name := range names {
			file, err := fs.ReadFile(files, name)
			if err != nil {
				return "", err
			}
			parts = append(parts, part(string(file), down))
		}
	}
	if down {
		slices.Reverse(parts)
	}
	return strings.Join(parts, ""), nil
}

// part returns one direction of a migration.
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
