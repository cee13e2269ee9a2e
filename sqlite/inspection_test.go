package sqlite

import "testing"

func TestAboveAPrefixIsTheNextThatDoesNotBeginWithIt(t *testing.T) {
	for prefix, want := range map[string]string{"a\xff\xff": "b", "\xff": "", "a/": "a0"} {
		if got := above(prefix); got != want {
			t.Errorf("above %q: %q, want %q", prefix, got, want)
		}
	}
}
