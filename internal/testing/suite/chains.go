package suite

import (
	"context"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var chains = inPlaces(own{
	{"Why follows the holders to the names that they wait for", chainOfWaiting},
	{"Why ends where holders wait for each other", chainInACircle},
})

// told names what Why tells of, in its order.
func told(t *testing.T, c Client, name string) (names []string) {
	t.Helper()
	infos, err := c.Why(t.Context(), name)
	require.NoError(t, err)
	for _, info := range infos {
		names = append(names, info.Name)
	}
	return names
}

func chainOfWaiting(t *testing.T, e *env) {
	c, other := e.client(t, dblock.WithDeadlockCheck(0)), e.client(t, dblock.WithDeadlockCheck(0))
	assert.Equal(t, fmt.Sprint(told(t, c, "of nobody")), "[of nobody]")
	ctx, cancel := context.WithCancel(context.Background())
	var waiting []<-chan outcome
	waits := func(c Client, name string, options ...dblock.LockOption) {
		t.Helper()
		waiting = append(waiting, locking(ctx, c, name, options...))
		e.queued(t, name, 1)
	}
	// a is held by one who waits for c, of which two have a share, one of whom waits for b.
	owner := func(thread string) dblock.LockOption { return dblock.Owner("host", thread) }
	held := []*dblock.Lock{
		lock(t, c, "a", owner("1")),
		lock(t, c, "c", owner("2"), dblock.Shared()), lock(t, other, "c", owner("3"), dblock.Shared()),
		lock(t, c, "b", owner("4")),
		lock(t, c, "other", owner("5")), lock(t, other, "others", owner("6")),
	}
	waits(c, "c", owner("1"))
	waits(other, "b", owner("3"))
	waits(c, "other", owner("2 "))     // is not 2
	waits(other, "others", owner("4")) // is not the 4 of c, whose session is another
	waits(c, "a", owner("7"))
	assert.Equal(t, fmt.Sprint(told(t, other, "a")), "[a c b]", "a waits for")
	assert.Equal(t, fmt.Sprint(told(t, c, "b")), "[b]", "b waits for")
	backend := e.app(t, 5).Backend
	for limit, want := range map[int]string{10: "[a c b]", 2: "[a c]", 1: "[a]"} {
		if names, err := backend.Why(brief(t), "a", limit); err != nil || fmt.Sprint(names) != want {
			t.Errorf("%d at most: %v, %v: want %s", limit, names, err, want)
		}
	}
	infos, err := c.Why(t.Context(), "c")
	if err != nil || len(infos) != 2 || len(infos[0].Holders) != 2 || infos[0].Waiters[0].Thread != "1" ||
		infos[1].Waiters[0].Thread != "3" {
		t.Errorf("%+v, %v", infos, err)
	}
	cancel()
	for _, w := range waiting {
		is(t, (<-w).err, context.Canceled)
	}
	for _, l := range held {
		unlock(t, l)
	}
	is(t, assert.ErrOf(c.Why(t.Context(), "")), dblock.ErrInvalidName)
}

func chainInACircle(t *testing.T, e *env) {
	c := e.client(t, dblock.WithDeadlockCheck(0))
	ctx, cancel := context.WithCancel(context.Background())
	var held []*dblock.Lock
	var waiting []<-chan outcome
	const members = 3
	for i := range members {
		held = append(held, lock(t, c, fmt.Sprint("n", i), dblock.Owner("host", fmt.Sprint(i))))
	}
	for i := range members {
		next := fmt.Sprint("n", (i+1)%members)
		waiting = append(waiting, locking(ctx, c, next, dblock.Owner("host", fmt.Sprint(i))))
		e.queued(t, next, 1)
	}
	assert.Equal(t, fmt.Sprint(told(t, c, "n1")), "[n1 n2 n0]", "n1 waits for")
	cancel()
	for i, w := range waiting {
		is(t, (<-w).err, context.Canceled)
		unlock(t, held[i])
	}
}
