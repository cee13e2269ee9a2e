package contracts

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
)

var sweeping = []test{
	{"locks whose fixed lease has expired are listed, and can be taken over then", overdue},
	{"a purge deletes names that have been idle for long, page by page", purge},
	{"tokens rise across a purge, wherever the clock stands", tokensAcrossAPurge},
	{"dead sessions are forgotten once nothing refers to them", forget},
}

func overdue(w *world) {
	a, b := w.session(), w.session()
	for _, r := range []protocol.Request{whole("n", a), units("n", a, 1, 2)} {
		r.Name, r.Lease = fmt.Sprint("n", r.Units), time.Hour
		w.take(r)
		next := w.queue(units(r.Name, b, 2, 2))
		lies := w.look(b, r.Name).Holder
		lies.Grant.Lease = -1
		w.takeOver(r.Name, lies, false)
		if list, err := w.Overdue(w.ctx, 10); err != nil || len(list) != 0 {
			w.Fatalf("%+v, %v", list, err)
		}
		w.exec("UPDATE dblock_locks SET expires_at = 1 WHERE session_id IS NOT NULL")
		w.exec("UPDATE dblock_shares SET expires_at = 1")
		list, err := w.Overdue(w.ctx, 10)
		if err != nil || len(list) != 1 || list[0].Name != r.Name || list[0].Holder.Session != a ||
			list[0].Holder.Units != r.Units || list[0].Holder.Grant.Lease != -1 {
			w.Fatalf("%+v, %v", list, err)
		}
		w.takeOver(r.Name, list[0].Holder, true, next)
		w.exec("DELETE FROM dblock_shares")
	}
	w.beats(a, true) // it lost its locks, and is alive
}

func purge(w *world) {
	s := w.session()
	for i := range 25 {
		w.release(w.take(whole(fmt.Sprintf("n%02d", i), s)))
	}
	if n, _, err := w.Purge(w.ctx, time.Hour, "", 100); err != nil || n != 0 {
		w.Fatalf("%d were purged that were in use a moment ago, %v", n, err)
	}
	w.exec("UPDATE dblock_locks SET acquired_at = 1, token = 1 WHERE name <> 'n09'")
	w.take(whole("n07", s))
	w.take(whole("n08", s))
	w.queue(whole("n08", s))
	w.take(reader("n10", s))
	w.exec("UPDATE dblock_locks SET acquired_at = 1, token = 1 WHERE name <> 'n09'")
	w.exec("UPDATE dblock_locks SET session_id = NULL WHERE name = 'n08'") // without a holder, and with a waiter
	w.exec("UPDATE dblock_locks SET rests_until = ? WHERE name = 'n11'", time.Now().Add(time.Hour).UnixMicro())
	var deleted, calls int
	for after := ""; calls == 0 || after != ""; calls++ {
		n, next, err := w.Purge(w.ctx, time.Hour, after, 10)
		if err != nil || next != "" && next <= after {
			w.Fatalf("%d, %q after %q: %v", n, next, after, err)
		}
		deleted, after = deleted+n, next
	}
	left := w.number("SELECT count(*) FROM dblock_locks WHERE name IN ('n07', 'n08', 'n09', 'n10', 'n11')")
	if deleted != 20 || calls != 3 || left != 5 {
		w.Errorf("%d were deleted in %d pages, %d of 5 in use are left", deleted, calls, left)
	}
	w.exec("UPDATE dblock_locks SET rests_until = 1")
	if n, _, err := w.Purge(w.ctx, time.Hour, "", 10); err != nil || n != 1 {
		w.Errorf("%d were purged after their rest, %v", n, err)
	}
}

func tokensAcrossAPurge(w *world) {
	s := w.session()
	held := w.take(whole("n", s))
	w.release(held)
	w.exec("UPDATE dblock_locks SET acquired_at = 1")
	purged := func(want int) {
		w.Helper()
		for tries := 1000; ; tries-- { // a row goes once the clock has passed its token
			n, _, err := w.Purge(w.ctx, time.Second, "", 10)
			if w.must(err); n == want {
				return
			}
			if tries == 0 {
				w.Fatalf("%d were purged, want %d", n, want)
			}
		}
	}
	purged(1)
	again := w.take(whole("n", s))
	if now := time.Now(); again.Token <= held.Token || again.Token < now.Add(-time.Minute).UnixMicro() ||
		again.Token > now.Add(time.Minute).UnixMicro() {
		w.Fatalf("token %d after %d", again.Token, held.Token)
	}
	w.release(again)
	ahead := time.Now().Add(time.Hour).UnixMicro()
	w.exec("UPDATE dblock_locks SET acquired_at = 1, token = ?", ahead)
	purged(0)
	if held = w.take(whole("n", s)); held.Token != ahead+1 {
		w.Errorf("token %d after %d", held.Token, ahead)
	}
	if next := w.release(held, w.queue(whole("n", s))); next[0].Grant.Token != ahead+2 {
		w.Errorf("token %d after %d", next[0].Grant.Token, ahead+1)
	}
}

func forget(w *world) {
	alive, holder, sharer, waiter, young := w.session(), w.session(), w.session(), w.session(), w.session()
	for range 5 {
		w.session()
	}
	w.take(whole("n", holder))
	w.take(reader("m", sharer))
	w.queue(whole("n", waiter))
	w.exec("UPDATE dblock_sessions SET dead = (1 = 1) WHERE id <> ?", alive)
	w.exec("UPDATE dblock_sessions SET started_at = 1 WHERE id <> ?", young)
	for _, want := range []int{3, 2, 0} {
		if n, err := w.Forget(w.ctx, time.Minute, 3); err != nil || n != want {
			w.Fatalf("%d were forgotten, %v; want %d", n, err, want)
		}
	}
	if n := w.number("SELECT count(*) FROM dblock_sessions WHERE id IN (?, ?, ?, ?, ?)", alive, holder, sharer,
		waiter, young); n != 5 {
		w.Errorf("%d of 5 are left", n)
	}
}
