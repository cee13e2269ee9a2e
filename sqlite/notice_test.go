package sqlite

import "testing"

func TestANoticeIsReadAsItWasWritten(t *testing.T) {
	for _, n := range []notice{{nth: 1, attempt: "a"}, {nth: 1 << 60, attempt: "with a space"}, {nth: 7}} {
		if got := readNotice(n.text()); got != n {
			t.Errorf("%+v, want %+v", got, n)
		}
	}
	for _, text := range []string{"", " ", "x", "x 1", "99999999999999999999 a", "\x00"} {
		if got := readNotice([]byte(text)); got != (notice{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
