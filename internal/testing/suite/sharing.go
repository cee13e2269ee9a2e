package suite

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var sharing = inPlaces(own{
	{"readers share a name, and a writer has it alone", readersShare},
	{"under a reader's context the name is entered again shared, and never alone", readerEnters},
	{"the only reader becomes a writer, before all waiters; of two none does", upgrade},
	{"LockTx waits for readers, and refuses to wait for its own owner's", lockTxAndReaders},
	{"when arrivals stop everyone has been served: readers, writers and permits", mixedLoad},
})

func readersShare(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	r1 := lock(t, a, "n", dblock.Shared())
	r2 := lock(t, b, "n", dblock.Shared())
	r3 := lock(t, a, "n", dblock.Shared())
	rising(t, r1.Token(), r2.Token(), r3.Token())
	if n := refused(t, b, "n"); n.Host == "" {
		t.Errorf("%v does not name the readers", n)
	}
	w := e.waiter(t, b, "n")
	refused(t, a, "n", dblock.Shared()) // a writer waits: neither barges
	for _, r := range []*dblock.Lock{r2, r1} {
		unlock(t, r)
		live(t, r3)
		stillWaits(t, 0, w)
	}
	unlock(t, r3)
	writer := granted(t, soon, w)
	rising(t, r3.Token(), writer.Token())
	refused(t, a, "n", dblock.Shared())
	unlock(t, writer)
	e.idle(t, "n")
}

// idle waits until a name is free and says so in all its columns.
func (e *env) idle(t testing.TB, name string) {
	t.Helper()
	e.free(t, name)
	eventually(t, soon, fmt.Sprintf("nobody has a share of %q", name), func() bool {
		return e.number(t, "SELECT count(*) FROM dblock_shares WHERE name = ?", name) == 0 &&
			e.number(t, "SELECT shared_units FROM dblock_locks WHERE name = ?", name) == 0
	})
}

func readerEnters(t *testing.T, e *env) {
	a := e.client(t)
	r := lock(t, a, "n", dblock.Shared())
	again, err := a.Lock(r.Context(), "n", dblock.Shared())
	if err != nil || again.Token() != r.Token() {
		t.Fatalf("entering again: %v", err)
	}
	_, err = a.Lock(r.Context(), "n")
	if says(t, err, dblock.ErrDeadlock, "TryUpgrade"); strings.Contains(err.Error(), "engine") {
		t.Errorf("%v: want what to do", err)
	}
	is(t, r.TryUpgrade(context.Background()), dblock.ErrUnsupported) // entered twice
	unlock(t, again)
	live(t, r)
	unlock(t, r)
	w := lock(t, a, "n")
	inner, err := a.Lock(w.Context(), "n", dblock.Shared()) // a holder of the whole name may read
	require.NoError(t, err)
	unlock(t, inner)
	unlock(t, w)
	e.idle(t, "n")
}

func upgrade(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	r1, r2 := lock(t, a, "n", dblock.Shared()), lock(t, b, "n", dblock.Shared())
	w := e.waiter(t, b, "n")
	is(t, r1.TryUpgrade(context.Background()), dblock.ErrNotAcquired)
	is(t, r2.TryUpgrade(context.Background()), dblock.ErrNotAcquired)
	live(t, r1)
	unlock(t, r2)
	require.NoError(t, r1.TryUpgrade(context.Background()))
	rising(t, r2.Token(), r1.Token())
	assert.NoError(t, r1.TryUpgrade(context.Background()), "of a writer")
	refused(t, b, "n", dblock.Shared())
	live(t, r1)
	unlock(t, r1)
	unlock(t, granted(t, soon, w))
	is(t, r1.TryUpgrade(context.Background()), dblock.ErrNotHeld)
	e.idle(t, "n")
}

func lockTxAndReaders(t *testing.T, e *env) {
	app := e.app(t, 6)
	a, b := e.clientOf(t, app), e.client(t)
	r := lock(t, b, "n", dblock.Shared())
	tx := beginTx(t, app, e.levels()[0])
	is(t, a.TryLockTx(t.Context(), tx, "n"), dblock.ErrNotAcquired)
	require.NoError(t, tx.rollback())
	tx = beginTx(t, app, e.levels()[0])
	defer tx.rollback()
	done := async(func() error { return a.LockTx(t.Context(), tx, "n") })
	e.queued(t, "n", 1)
	unlock(t, r)
	require.NoError(t, within(t, soon, "LockTx is granted", done))
	require.NoError(t, tx.commit(context.Background()))
	e.idle(t, "n")
	own := lock(t, a, "n", dblock.Shared())
	tx = beginTx(t, app, e.levels()[0])
	defer tx.rollback()
	is(t, a.LockTx(own.Context(), tx, "n"), dblock.ErrDeadlock)
	require.NoError(t, tx.rollback())
	unlock(t, own)
}

// mixedLoad checks what must hold at every moment, and that no holder or waiter is left.
func mixedLoad(t *testing.T, e *env) {
	clients := []Client{e.client(t), e.client(t), e.client(t)}
	ctx := limited(t, 6*patience)
	const whole, size, less = 1000, 5, 3
	type share struct{ units, limit int } // a writer is whole
	var mu sync.Mutex                     // protects held
	held := map[*dblock.Lock]share{}      // of both names
	run := func(c Client, name string, units, limit int, options ...dblock.LockOption) {
		l, err := c.Lock(ctx, name, options...)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		held[l] = share{units, limit}
		used, most := 0, whole
		for _, s := range held {
			used, most = used+s.units, min(most, s.limit)
		}
		mu.Unlock()
		if used > most {
			t.Errorf("%d units of %q are held: at most %d", used, name, most)
		}
		runtime.Gosched()
		mu.Lock()
		delete(held, l)
		mu.Unlock()
		assert.NoError(t, l.Unlock(ctx))
	}
	for name, kinds := range map[string][]func(c Client, name string){
		"read and written": {
			func(c Client, name string) { run(c, name, 1, whole-1, dblock.Shared()) },
			func(c Client, name string) { run(c, name, whole, whole) },
		},
		"permits": {
			func(c Client, name string) { run(c, name, 1, size, dblock.Permits(1, size)) },
			func(c Client, name string) { run(c, name, 4, size, dblock.Permits(4, size)) },
			func(c Client, name string) { run(c, name, 2, size, dblock.Permits(2, size)) },
			func(c Client, name string) { run(c, name, 2, less, dblock.Permits(2, less)) },
			func(c Client, name string) { run(c, name, size, size) },
		},
	} {
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				for round := range 4 {
					kinds[(i+round)%len(kinds)](clients[i%len(clients)], name)
				}
			})
		}
		all.Wait()
		e.idle(t, name)
	}
}
