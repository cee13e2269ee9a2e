package mysql

import (
	"slices"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestAListIsWholeWhereverItsEndMarkStands(t *testing.T) {
	for _, rows := range [][]string{{"a", "b", ""}, {"", "a", "b"}, {"a", "", "b"}} {
		list, err := whole(slices.Clone(rows), nil, func(row string) bool { return row == "" })
		assert.NoError(t, err, rows)
		assert.Equal(t, len(list), 2, rows)
		assert.Equal(t, list[0]+list[1], "ab", rows)
	}
	_, err := whole([]string{"a", "b"}, nil, func(row string) bool { return row == "" })
	assert.Error(t, err, "a list without its end mark")
}
