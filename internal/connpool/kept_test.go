package connpool

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestKeptConnectionsAreCountedByTheirUse(t *testing.T) {
	pool, other := new(int), new(int)
	Keep(nil, "beside the pool", Heartbeats)
	Keep(pool, "a", Heartbeats)
	Keep(pool, "b", Beside)
	Keep(pool, "c", Listening)
	Keep(pool, "d", Beside)
	Keep(other, "a", Heartbeats)
	assert.Equal(t, Kept(pool), "4 (1 for heartbeats, 2 for work beside transactions, 1 for listening)")
	for range 2 {
		Leave(pool, "b")
		Leave(pool, "c")
	}
	assert.Equal(t, Kept(pool), "2 (1 for heartbeats, 1 for work beside transactions)")
	Leave(pool, "a")
	Leave(pool, "d")
	assert.Equal(t, Kept(pool), "", "nothing")
	assert.Equal(t, Kept(other), "1 (1 for heartbeats)")
	Leave(other, "a")
	assert.Equal(t, len(kept.of), 0, "pools that are remembered")
}
