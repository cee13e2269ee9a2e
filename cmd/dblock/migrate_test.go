package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTablesComeAndGo(t *testing.T) {
	eachKind(t, func(w *world) {
		contains(w, w.must("migrate", "status"), "00001_dblock.sql", "yes")
		contains(w, w.must("migrate", "up"), "The tables are current: nothing was done.")
		contains(w, w.must("migrate", "status", "--set", "fences"), "no")
		contains(w, w.must("migrate", "up", "--set", "fences,versions"), "fences", "00001_dblock_versions.sql", "yes")
		if out := w.must("migrate", "status", "--set", "fences,versions"); strings.Contains(out, "no") {
			w.Error(out)
		}
		if s := w.run("migrate", "down"); s.status != exitUsage || !strings.Contains(s.err, "--yes") {
			w.Errorf("%+v", s)
		}
		w.must("migrate", "down", "--yes")
		for _, command := range [][]string{{"ls"}, {"show", "n"}, {"why", "n"}, {"sessions"}, {"jobs"}, {"events"},
			{"run", "n", "--", "true"}} {
			s := w.run(command...)
			if s.status != exitFailed || !strings.HasPrefix(s.err, "dblock: dblock's tables are missing in ") ||
				!strings.Contains(s.err, `run "dblock migrate up"`) {
				w.Errorf("%v without tables: %+v", command, s)
			}
		}
		w.must("migrate", "up")
		w.must("ls")
		contains(w, w.must("reap"), "0 sessions expired")
	})
}

func TestADumpIsForGoose(t *testing.T) {
	folder := t.TempDir()
	s := alone(t, "migrate", "dump", folder, "--engine", "postgres")
	files, err := filepath.Glob(filepath.Join(folder, "*_00001_dblock.sql"))
	if s.status != 0 || err != nil || len(files) != 1 || !strings.Contains(s.out, filepath.Base(files[0])) {
		t.Fatalf("%+v, %v", s, files)
	}
	if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), "+goose Up") {
		t.Error(err)
	}
	if s := alone(t, "migrate", "dump", folder, "--engine", "oracle"); s.status != exitUsage {
		t.Errorf("%+v", s)
	}
}

func TestPlainSQLIsForOtherTools(t *testing.T) {
	for _, engine := range []string{"postgres", "mysql", "sqlite"} {
		s := alone(t, "migrate", "sql", "--engine", engine, "--set", "locks,fences")
		if s.status != 0 || !strings.Contains(s.out, "CREATE TABLE") || !strings.Contains(s.out, "dblock_fences") ||
			strings.Contains(s.out, "+goose") || strings.Contains(s.out, "DROP TABLE") {
			t.Errorf("%s: %+v", engine, s)
		}
		if s := alone(t, "migrate", "sql", "--engine", engine, "--down"); s.status != 0 ||
			!strings.Contains(s.out, "DROP TABLE") || strings.Contains(s.out, "CREATE TABLE") {
			t.Errorf("%s: %+v", engine, s)
		}
	}
	s := alone(t, "migrate", "sql", "--engine", "mysql", "--schema", "app")
	contains(t, s.out, "CREATE TABLE IF NOT EXISTS `app`.dblock_locks")
	if s := alone(t, "migrate", "sql"); s.status != exitUsage {
		t.Errorf("%+v", s)
	}
}

func TestTheTablesMayBeInASchema(t *testing.T) {
	onPostgres(t, func(w *world) {
		held := w.lock("elsewhere")
		w.must("migrate", "up", "--schema", "locks", "--set", "locks,fences")
		contains(w, w.must("migrate", "status", "--schema", "locks", "--set", "locks,fences"), "00001_dblock.sql",
			"yes")
		if out := w.must("ls", "--schema", "locks"); strings.Contains(out, "elsewhere") {
			w.Errorf("a lock of another schema: %s", out)
		}
		w.must("migrate", "down", "--schema", "locks", "--yes")
		contains(w, w.must("ls"), held.Name())
		if s := w.run("ls", "--schema", "locks"); s.status != exitFailed ||
			!strings.Contains(s.err, "tables are missing") {
			w.Errorf("%+v", s)
		}
	})
	if s := alone(t, "ls", "--local", "--schema", "locks"); s.status != exitUsage {
		t.Errorf("%+v", s)
	}
}
