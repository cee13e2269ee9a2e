package suite

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var sharing = inPlaces(own{
	{"readers share a name, and a writer has it alone", readersShare},
	{"readers and writers are served in the order in which they queued, neighbouring readers together", readersInTurn},
	{"a writer that gives up lets in the readers behind it", writerGivesUp},
	{"under a reader's context the name is entered again shared, and never alone", readerEnters},
	{"a writer becomes a reader with no writer in between", downgrade},
	{"a writer that lets in readers of its own client keeps its lock", downgradeAmongFriends},
	{"a fixed lease ends when it would have, whatever the lock has become", regradedLease},
	{"the only reader becomes a writer, before all waiters; of two none does", upgrade},
	{"what was read alone is written alone: no update is lost between upgrades", upgradesUnderLoad},
	{"a reader can guard a transaction and unlock in one", readerInTransaction},
	{"LockTx waits for readers, and refuses to wait for its own owner's", lockTxAndReaders},
	{"when arrivals stop everyone has been served: readers, writers and permits", mixedLoad},
}, moving{
	{"a reader's crash releases its own share only", readerCrashes},
	{"a reader's fixed lease ends, and the writer comes in", readersLease},
}, flowing{
	{"a dead writer at the head of the queue does not keep readers from readers", deadWriterAtHead},
	{"a crowd of readers that crashed is succeeded", crowdCrashes},
})

func readersShare(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	r1 := lock(t, a, "n", dblock.Shared())
	r2 := lock(t, b, "n", dblock.Shared())
	r3 := lock(t, a, "n", dblock.Shared())
	rising(t, []int64{r1.Token(), r2.Token(), r3.Token()})
	if n := refused(t, b, "n"); n.Host == "" {
		t.Errorf("%v does not name the readers", n)
	}
	w := locking(context.Background(), b, "n")
	e.queued(t, "n", 1)
	refused(t, a, "n", dblock.Shared()) // a writer waits: neither barges
	for _, r := range []*dblock.Lock{r2, r1} {
		unlock(t, r)
		live(t, r3)
		if len(w) > 0 {
			t.Fatal("a writer came in while there was a reader")
		}
	}
	unlock(t, r3)
	writer := granted(t, soon, w)
	rising(t, []int64{r3.Token(), writer.Token()})
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

func readersInTurn(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	first := lock(t, a, "n")
	modes := []string{"r", "r", "w", "r", "w", "w", "r", "r", "r"}
	line := make([]<-chan outcome, len(modes))
	for i, mode := range modes {
		var options []dblock.LockOption
		if mode == "r" {
			options = append(options, dblock.Shared())
		}
		line[i] = locking(context.Background(), []Client{a, b}[i%2], "n", options...)
		e.queued(t, "n", i+1)
	}
	last := []*dblock.Lock{first}
	tokens := []int64{first.Token()}
	for i := 0; i < len(modes); {
		n := 1
		for modes[i] == "r" && i+n < len(modes) && modes[i+n] == "r" {
			n++
		}
		for _, l := range last[1:] {
			unlock(t, l)
		}
		if len(line[i]) > 0 {
			t.Fatalf("%d came in too early", i)
		}
		unlock(t, last[0]) // one commit lets all of the next in
		last = nil
		for _, next := range line[i : i+n] {
			l := granted(t, soon, next)
			last, tokens = append(last, l), append(tokens, l.Token())
		}
		i += n
		require.Equal(t, e.waiting(t, "n"), len(modes)-i, "wait after", i, "were served")
	}
	rising(t, tokens)
	for _, l := range last {
		unlock(t, l)
	}
	e.idle(t, "n")
}

func writerGivesUp(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	r := lock(t, a, "n", dblock.Shared())
	ctx, cancel := context.WithCancel(context.Background())
	w := locking(ctx, b, "n")
	e.queued(t, "n", 1)
	r2 := locking(context.Background(), b, "n", dblock.Shared())
	e.queued(t, "n", 2)
	r3 := locking(context.Background(), a, "n", dblock.Shared())
	e.queued(t, "n", 3)
	cancel()
	calledOff(t, within(t, soon, "the writer gives up", w).err, context.Canceled)
	for _, next := range []<-chan outcome{r2, r3} {
		unlock(t, granted(t, soon, next))
	}
	live(t, r)
	unlock(t, r)
	e.idle(t, "n")
}

// deadWriterAtHead: without a reaper, and without a reader that leaves, the waiters notice the
// death themselves.
func deadWriterAtHead(t *testing.T, e *env) {
	a, b := e.client(t, dblock.WithoutReaper()), e.app(t, 5)
	r := lock(t, a, "n", dblock.Shared())
	crashed := e.clientOf(t, b, dblock.WithoutReaper())
	_ = locking(t.Context(), crashed, "n")
	e.queued(t, "n", 1)
	session := e.text(t, "SELECT session_id FROM dblock_waiters WHERE name = 'n'")
	next := locking(context.Background(), a, "n", dblock.Shared())
	e.queued(t, "n", 2)
	e.end(t, session)
	unlock(t, granted(t, soon, next))
	live(t, r)
	unlock(t, r)
}

func readerCrashes(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	keep := lock(t, a, "n", dblock.Shared())
	gone := lock(t, b, "n", dblock.Shared())
	c := e.client(t)
	w := locking(context.Background(), c, "n")
	e.queued(t, "n", 1)
	e.end(t, e.text(t, "SELECT session_id FROM dblock_shares WHERE token = ?", gone.Token()))
	e.advanceUntil(t, longTTL, "the reader that crashed knows", func() bool { return gone.Context().Err() != nil })
	ended(t, soon, gone, dblock.ErrLost)
	e.advanceUntil(t, 2*longTTL, "the share is given back", func() bool {
		return e.number(t, "SELECT shared_units FROM dblock_locks WHERE name = 'n'") == 1
	})
	live(t, keep)
	if len(w) > 0 {
		t.Fatal("the writer came in while there was a reader")
	}
	unlock(t, keep)
	unlock(t, granted(t, soon, w))
	e.idle(t, "n")
}

func readersLease(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	r := lock(t, a, "n", dblock.Shared(), dblock.Lease(longTTL))
	w := locking(context.Background(), b, "n")
	e.queued(t, "n", 1)
	e.advance(t, longTTL/2)
	live(t, r)
	e.queued(t, "n", 1)
	e.advance(t, longTTL/2+time.Second)
	writer := granted(t, soon, w)
	ended(t, soon, r, dblock.ErrLost)
	is(t, r.Unlock(context.Background()), dblock.ErrLost)
	unlock(t, writer)
	e.idle(t, "n")
}

func readerEnters(t *testing.T, e *env) {
	a := e.client(t)
	r := lock(t, a, "n", dblock.Shared())
	again, err := a.Lock(r.Context(), "n", dblock.Shared())
	if err != nil || again.Token() != r.Token() {
		t.Fatalf("entering again: %v", err)
	}
	_, err = a.Lock(r.Context(), "n")
	is(t, err, dblock.ErrDeadlock)
	if text := err.Error(); !strings.Contains(text, "TryUpgrade") || strings.Contains(text, "engine") {
		t.Errorf("%s: want what to do", text)
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

func downgrade(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	w := lock(t, a, "n", dblock.Metadata(map[string]string{"k": "v"}))
	token := w.Token()
	r2 := locking(context.Background(), b, "n", dblock.Shared())
	e.queued(t, "n", 1)
	w2 := locking(context.Background(), b, "n")
	e.queued(t, "n", 2)
	require.NoError(t, w.Downgrade(context.Background()))
	reader := granted(t, soon, r2)
	live(t, w)
	if w.Token() != token {
		t.Errorf("the token is %d, was %d", w.Token(), token)
	}
	is(t, w.Downgrade(context.Background()), dblock.ErrUnsupported)
	unlock(t, reader)
	if len(w2) > 0 {
		t.Fatal("another writer came in")
	}
	unlock(t, w)
	unlock(t, granted(t, soon, w2))
	e.idle(t, "n")
}

// Broken by a change of the lock that drops the end of its fixed lease: it would last as long as
// the session.
func regradedLease(t *testing.T, e *env) {
	a := e.client(t)
	l := lock(t, a, "n", dblock.Lease(time.Hour))
	ends := e.number(t, "SELECT expires_at FROM dblock_locks WHERE name = 'n'")
	if left := time.Duration(ends-e.now(t)) * time.Microsecond; left < 50*time.Minute {
		t.Fatalf("the lease has %v left", left)
	}
	require.NoError(t, l.Downgrade(t.Context()))
	if now := e.number(t, "SELECT expires_at FROM dblock_shares WHERE name = 'n'"); now != ends {
		t.Errorf("the reader's lease ends at %d, the writer's ended at %d", now, ends)
	}
	require.NoError(t, l.TryUpgrade(t.Context()))
	if now := e.number(t, "SELECT expires_at FROM dblock_locks WHERE name = 'n'"); now != ends {
		t.Errorf("the writer's lease ends at %d, the reader's ended at %d", now, ends)
	}
	unlock(t, l)
	e.idle(t, "n")
}

// downgradeAmongFriends: a reader may hear of its grant before the writer has its answer.
func downgradeAmongFriends(t *testing.T, e *env) {
	a := e.client(t)
	for range 20 {
		w := lock(t, a, "n")
		var readers []<-chan outcome
		for i := range 3 {
			readers = append(readers, locking(context.Background(), a, "n", dblock.Shared()))
			e.queued(t, "n", i+1)
		}
		require.NoError(t, w.Downgrade(t.Context()))
		for _, r := range readers {
			unlock(t, granted(t, soon, r))
		}
		live(t, w)
		unlock(t, w)
	}
	e.idle(t, "n")
}

func crowdCrashes(t *testing.T, e *env) {
	gone := e.client(t, dblock.WithoutReaper())
	for range 15 {
		lock(t, gone, "n", dblock.Shared())
	}
	b := e.client(t, dblock.WithoutReaper())
	w := locking(context.Background(), b, "n")
	e.queued(t, "n", 1)
	session := e.text(t, "SELECT max(session_id) FROM dblock_shares")
	e.end(t, session)
	unlock(t, granted(t, patience, w))
	e.idle(t, "n")
}

func upgrade(t *testing.T, e *env) {
	a, b := e.client(t), e.client(t)
	r1, r2 := lock(t, a, "n", dblock.Shared()), lock(t, b, "n", dblock.Shared())
	w := locking(context.Background(), b, "n")
	e.queued(t, "n", 1)
	is(t, r1.TryUpgrade(context.Background()), dblock.ErrNotAcquired)
	is(t, r2.TryUpgrade(context.Background()), dblock.ErrNotAcquired)
	live(t, r1)
	unlock(t, r2)
	before := r1.Token()
	require.NoError(t, r1.TryUpgrade(context.Background()))
	rising(t, []int64{before, r2.Token(), r1.Token()}[1:])
	assert.NoError(t, r1.TryUpgrade(context.Background()), "of a writer")
	refused(t, b, "n", dblock.Shared())
	live(t, r1)
	unlock(t, r1)
	unlock(t, granted(t, soon, w))
	is(t, r1.TryUpgrade(context.Background()), dblock.ErrNotHeld)
	e.idle(t, "n")
}

// upgradesUnderLoad has readers look at a number and write it, if they can become writers.
func upgradesUnderLoad(t *testing.T, e *env) {
	clients := []Client{e.client(t), e.client(t)}
	var number, done, refusals atomic.Int64
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for range 8 {
				r, err := clients[i%2].Lock(t.Context(), "n", dblock.Shared())
				if err != nil {
					t.Error(err)
					return
				}
				seen := number.Load()
				if err := r.TryUpgrade(t.Context()); err == nil {
					runtime.Gosched()
					number.Store(seen + 1)
					done.Add(1)
				} else {
					is(t, err, dblock.ErrNotAcquired)
					refusals.Add(1)
				}
				assert.NoError(t, r.Unlock(t.Context()))
			}
		})
	}
	all.Wait()
	if number.Load() != done.Load() {
		t.Errorf("%d upgrades made %d: updates were lost", done.Load(), number.Load())
	}
	t.Logf("%d upgraded, %d refused", done.Load(), refusals.Load())
	e.idle(t, "n")
}

func readerInTransaction(t *testing.T, e *env) {
	app := e.app(t, 5)
	a, b := e.clientOf(t, app), e.client(t)
	for _, end := range []string{"commit", "rollback"} {
		r, r2 := lock(t, a, "n", dblock.Shared()), lock(t, b, "n", dblock.Shared())
		w := locking(context.Background(), b, "n")
		if e.wiring.Kind != SQLite { // there the transaction locks the whole database
			e.queued(t, "n", 1)
		}
		unlock(t, r2)
		tx := beginTx(t, app, e.levels()[0])
		require.NoError(t, a.Guard(t.Context(), tx, r))
		require.NoError(t, a.UnlockTx(t.Context(), tx, r))
		if end == "commit" {
			require.NoError(t, tx.commit(context.Background()))
			unlock(t, r)
		} else {
			require.NoError(t, tx.rollback())
			live(t, r)
			if len(w) > 0 {
				t.Fatal("the writer came in after a rollback")
			}
			unlock(t, r)
		}
		unlock(t, granted(t, soon, w))
	}
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
	done := make(chan error, 1)
	go func() { done <- a.LockTx(t.Context(), tx, "n") }()
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
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
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
