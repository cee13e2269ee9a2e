package suite

import (
	"maps"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var names = inPlaces(own{
	{"names that differ in any byte are different locks", differentNames},
	{"names, owners and metadata are kept byte for byte", awkwardNames},
})

// similar are names that one collation or another takes for the same.
var similar = []string{
	"a", "A", "a ", " a", "a  ", "a\t", "a\n", "a\u00a0", "a\u200b", "a\u0301", "\u00e1", "\u00c1", "\u00e0", "\u00e2",
	"ss", "\u00df", "\u1e9e", "SS", "i", "I", "\u0131", "\u0130", "\u00e5", "\u212b", "a\u030a", "oe", "\u0153", "ae",
	"\u00e6",
	"1", "\u00b9", "\u2460", "\uff11", "k", "\u212a", "\u03c3", "\u03c2", "\u03a3", "\ufb01", "fi", "\u30ab", "\u304b",
	"\uff76",
	"\U0001f600", "\U0001f601", "\ufffd", "\u0001", "\u0002", "01", "1.0", "1e0", "0x1",
}

func differentNames(t *testing.T, e *env) {
	c := e.client(t)
	long := strings.Repeat("x", 254)
	many := append([]string{long, long + "x", long + "y", long + " "}, similar...)
	for _, name := range many {
		l, err := c.TryLock(t.Context(), name)
		require.NoError(t, err, name, "is taken for another name")
		assert.Equal(t, l.Name(), name, "name")
	}
	held := e.number(t, "SELECT count(*) FROM dblock_locks WHERE session_id IS NOT NULL")
	assert.Equal(t, int(held), len(many), "rows")
	other := e.client(t)
	for _, name := range many {
		refused(t, other, name)
	}
}

func awkwardNames(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	for i, name := range []string{
		"'; DROP TABLE dblock_locks; --", `"quoted"`, "back\\slash\\", "`tick`", "100%", "%s%d", "under_score", "?",
		"$1", ":name", "@name",
		"line\nbreak\r\n", "\u0001\u001f\u007f", "\U0001f512\U0001f469\u200d\U0001f4bb", "\u6f22\u5b57", "[]", "{}",
		"null", "NULL", "\ufeffbom", "\ufffe",
		strings.Repeat("\U0001f512", 63) + "xyz",
	} {
		thread := name
		metadata := map[string]string{name: name}
		first := lock(t, a, name, dblock.Owner(name, thread), dblock.Metadata(metadata))
		assert.Equal(t, e.text(t, "SELECT name FROM dblock_locks WHERE name = ?", name), name, "name")
		info, err := b.Inspect(t.Context(), name)
		if err != nil || len(info.Holders) != 1 || !maps.Equal(info.Holders[0].Metadata, metadata) {
			t.Errorf("%+v, %v: want metadata %q", info, err, metadata)
		}
		if r := refused(t, b, name); r.Host != name || r.Thread != thread {
			t.Errorf("held by %q, %q: want %q", r.Host, r.Thread, name)
		}
		if i%3 == 0 { // the way through the queue
			served(t, first, e.line(t, name, 1, []Client{b}, background)...)
		} else {
			unlock(t, first)
		}
		e.free(t, name)
	}
	assert.Equal(t, e.number(t, "SELECT count(*) FROM dblock_locks"), 22, "names")
}
