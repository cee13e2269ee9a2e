package dbtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestALongLogGoesToAFile(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("DBLOCK_TEST_LOGS", folder)
	if got := Excerpt(t, "actor", "one\ntwo\n"); got != "wrote:\none\ntwo" {
		t.Errorf("a short log is %q: want it whole", got)
	}
	log := strings.Repeat("line\n", 500) + "last"
	got := Excerpt(t, "actor 1", log)
	if lines := strings.Count(got, "\n"); lines != excerptLines || !strings.HasSuffix(got, "\nlast") {
		t.Errorf("the excerpt has %d lines: want %d, and the last one", lines, excerptLines)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*.log"))
	if len(files) != 1 || !strings.Contains(got, files[0]) {
		t.Fatalf("the excerpt names none of the files %v: %s", files, got)
	}
	if whole, err := os.ReadFile(files[0]); err != nil || string(whole) != log+"\n" {
		t.Errorf("the file has %d bytes, error %v: want the whole log", len(whole), err)
	}
}

func TestManyLogsAreShownInShort(t *testing.T) {
	t.Setenv("DBLOCK_TEST_LOGS", t.TempDir())
	shown := 0
	for range 10 {
		shown += strings.Count(Excerpt(t, "actor", strings.Repeat("line\n", 50)), "\nline")
	}
	if want := fullExcerpts*excerptLines + 10 - fullExcerpts; shown != want {
		t.Errorf("ten long logs are shown in %d lines: want %d", shown, want)
	}
}
