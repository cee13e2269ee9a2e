package dblock_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestNameJoinsPartsAndTellsThemApart(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"", ""}, "/"},
		{[]string{"invoice"}, "invoice"},
		{[]string{"tenant", "42", "invoices"}, "tenant/42/invoices"},
		{[]string{"a/b"}, "a%2Fb"},
		{[]string{"a%2Fb"}, "a%252Fb"},
		{[]string{"100 %"}, "100 %25"},
		{[]string{"a", "/", "b"}, "a/%2F/b"},
		{[]string{long[:255]}, long[:255]},
		{[]string{long[:127], long[:127]}, long[:127] + "/" + long[:127]},
	} {
		assert.Equal(t, dblock.Name(c.parts...), c.want, "Name(", c.parts, ") is")
	}
}

func TestALongNameKeepsItsBeginningAndEndsInAHash(t *testing.T) {
	const suffix = len("%#") + 32
	for what, c := range map[string]struct{ part, begins string }{
		"letters":             {strings.Repeat("x", 256), strings.Repeat("x", 250-suffix)},
		"characters of three": {strings.Repeat("\u6f22", 100), strings.Repeat("\u6f22", (250-suffix)/3)},
		"escapes":             {strings.Repeat("/", 100), strings.Repeat("%2F", (250-suffix)/3)},
		"an escape at the cut": {
			strings.Repeat("x", 250-suffix-2) + "/" + strings.Repeat("y", 100), strings.Repeat("x", 250-suffix-2),
		},
	} {
		got := dblock.Name(c.part)
		begins, hash, marked := strings.Cut(got, "%#")
		if begins != c.begins || !marked || len(hash) != 32 || len(got) > 250 || !utf8.ValidString(got) {
			t.Errorf("%s: %q of %d bytes: want %q, a mark and a hash", what, got, len(got), c.begins)
		}
		if other := dblock.Name(c.part + "z"); other == got {
			t.Errorf("%s: another name is the same", what)
		}
		if other := dblock.Name(got); other == got {
			t.Errorf("%s: the name of the name is the same", what)
		}
	}
}

// The parts of a list are what stands between two U+0001.
func FuzzName(f *testing.F) {
	long := strings.Repeat("long/", 60)
	for _, seed := range [][2]string{
		{"a\x01b", "a/b"}, {"a%2Fb", "a/b"}, {"", "\x01"}, {"a\x01", "\x01a"}, {long, long + "x"},
		{long + "\x01a", long + "/a"},
		{strings.Repeat("x", 255), strings.Repeat("x", 256)}, {strings.Repeat("x", 300),
			dblock.Name(strings.Repeat("x", 300))},
		{"%", "%25"}, {"%#", "%25#"}, {strings.Repeat("\u00fc", 140), strings.Repeat("\u00fc", 141)},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		as, bs := strings.Split(a, "\x01"), strings.Split(b, "\x01")
		x, y := dblock.Name(as...), dblock.Name(bs...)
		if (x == y) != slices.Equal(as, bs) {
			t.Errorf("%q is %q, and %q is %q", as, x, bs, y)
		}
		for parts, name := range map[*[]string]string{&as: x, &bs: y} {
			if len(name) > 255 || utf8.ValidString(strings.Join(*parts, "")) != utf8.ValidString(name) &&
				utf8.ValidString(strings.Join(*parts, "")) {
				t.Errorf("%q is %q, of %d bytes", *parts, name, len(name))
			}
		}
	})
}
