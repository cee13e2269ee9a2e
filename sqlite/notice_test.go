package sqlite

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestANoticeIsReadAsItWasWritten(t *testing.T) {
	for _, n := range []notice{{nth: 1, attempt: "a"}, {nth: 1 << 60, attempt: "with a space"}, {nth: 7}} {
		assert.Equal(t, readNotice(n.text()), n)
	}
	for _, text := range []string{"", " ", "x", "x 1", "99999999999999999999 a", "\x00"} {
		assert.Equal(t, readNotice([]byte(text)), (notice{}), text)
	}
}
