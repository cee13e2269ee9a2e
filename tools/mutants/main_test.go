package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A mutant whose text has gone from its place breaks nothing, and one whose test has gone proves
// nothing.
func TestEveryMutantStillApplies(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := readAll(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 || len(all) > 530 {
		t.Errorf("%d mutants; at most 530 can be run and read", len(all))
	}
	for _, m := range all {
		if _, err := m.apply(root); err != nil {
			t.Errorf("%v: %v", m, err)
		}
		if err := m.missing(root); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
}

func TestATextIsFoundOnceWhateverItsWhiteSpace(t *testing.T) {
	const text = "SELECT  a,\n\tb FROM t\n WHERE (a > 1)\n   AND b > 1"
	for part, want := range map[string]string{
		"a, b from":         "not found",
		"a, b FROM":         "a,\n\tb FROM",
		"SELECT a,b":        "SELECT  a,\n\tb",
		"WHERE ( a>1 ) AND": "WHERE (a > 1)\n   AND",
		"bFROM":             "not found",
		"> 1":               "found more than once",
	} {
		from, to, err := find(text, part)
		if got := text[from:to]; err != nil && err.Error() != want || err == nil && got != want {
			t.Errorf("%q: %q, %v; want %q", part, got, err, want)
		}
	}
}

func TestAParagraphOutOfOrderIsRefused(t *testing.T) {
	const whole = "a rule\n@ a/b.go T.f\n- x\n- y\n+ z\n- u\n! a TestThis/one sentence of it\n"
	all, err := parse("a", "# a heading\n\n"+whole+"\n"+whole)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if m := all[0]; m.rule != "a rule" || m.line != 3 || m.file != "a/b.go" || m.part != "T.f" || len(m.edits) != 2 ||
		m.edits[0] != (edit{"x\ny", "z"}) || m.edits[1] != (edit{"u", ""}) || m.pkg != "a" ||
		m.test != "TestThis/one sentence of it" {
		t.Errorf("%+v", m)
	}
	for _, line := range []string{"@ a/b.go T.f\n", "- x\n- y\n+ z\n- u\n", "! a TestThis/one sentence of it\n"} {
		if _, err := parse("a", strings.Replace(whole, line, "", 1)); err == nil {
			t.Errorf("read without %q", line)
		}
	}
}
