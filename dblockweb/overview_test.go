package dblockweb_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestTheOverviewBeginsWithTheLongestQueue(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b/short", "c/long", "d"} {
		w.lock(name)
	}
	w.waits("b/short", 1)
	w.waits("c/long", 1)
	w.waits("c/long", 2)
	w.waits("d", 1, contract.Set(func(o *contract.Options) { o.Candidate = true }))
	page := w.get("")
	order := []string{"c/long", "b/short", ">a<", ">d<"}
	for i := range order[1:] {
		if a, b := strings.Index(page, order[i]), strings.Index(page, order[i+1]); a < 0 || b < a {
			t.Errorf("%q does not come before %q in\n%s", order[i], order[i+1], page)
		}
	}
	assert.Equal(t, strings.Count(page, `data-key="b/short"`), 1, "a name with waiters stands there twice")
	w.contains(page, ">2 names, the longest queue first")
	w.contains(page, "and <span class=\"whole\">1 stand-by</span></small>")
	w.lacks(page, "2 stand-bys")
	w.contains(w.get("lock?name=d"), "waits for the lead", ">the lead<",
		"1 holder, 0 waiters, <span class=\"whole\">1 stand-by", ">Stand-bys <")
	w.lacks(w.get("lock?name=d"), ">Waiters <")
	w.lacks(w.get("lock?name=c%2flong"), ">Stand-bys <")
	w.lacks(w.get("?prefix=b"), "c/long", ">a<")
	w.lacks(w.get("?host=elsewhere"), "c/long", ">a<", "b/short")
	w.lacks(w.get("?older=1h"), ">a<")
}

func TestTheOverviewLeadsFromPageToPage(t *testing.T) {
	w := newWorld(t)
	for i := range 230 {
		w.lock(fmt.Sprintf("n/%03d?&", i))
	}
	seen, at := map[string]bool{}, "?prefix=n/&older=0s"
	for pages := 0; at != ""; pages++ {
		page := w.get(at)
		at = ""
		for _, l := range links(page) {
			to, err := url.Parse(l)
			require.NoError(t, err)
			switch {
			case to.Path == "lock":
				if seen[l] {
					t.Errorf("%s stands there twice", l)
				}
				seen[l] = true
			case to.Query().Get("after") != "":
				at = l
				if q := to.Query(); q.Get("prefix") != "n/" || q.Get("older") != "0s" {
					t.Errorf("the next page forgets what was searched: %s", l)
				}
			}
		}
		if pages > 3 {
			t.Fatal("there is no end")
		}
	}
	assert.Equal(t, len(seen), 230, "of 230 names")
}

func TestAListThatIsCutSaysSo(t *testing.T) {
	w := newWorld(t)
	for i := range 101 {
		w.lock(fmt.Sprintf("n/%03d", i))
		if i == 99 {
			page := w.get("")
			w.contains(page, ">100 names, the oldest first")
			w.lacks(page, "Next names")
		}
	}
	page := w.get("")
	w.contains(page, ">the first 100 of more than 100 names, in the order of names")
	w.contains(w.get(w.linkTo(page, "./?prefix=&host=&older=&after=")), ">1 name, the oldest first")
}

func TestANameWithWaitersStandsOnALaterPageToo(t *testing.T) {
	w := newWorld(t)
	for i := range 130 {
		w.lock(fmt.Sprintf("n/%03d", i))
	}
	w.waits("n/120", 1)
	first := w.get("")
	w.contains(first, `data-key="n/120"`)
	second := w.get(w.linkTo(first, "./?prefix=&host=&older=&after="))
	w.contains(second, `data-key="n/119"`, `data-key="n/120"`, `data-key="n/121"`)
}

func TestLinesBreakBehindSlashesAndNotInNumbers(t *testing.T) {
	w := newWorld(t)
	w.lock("import/eu/2026-11-23/v2")
	w.contains(w.get(""), `import/<wbr>eu/<wbr><span class="whole">2026-11-23</span>/<wbr>v<span class="whole">2</span></a>`)
}

func TestALockShowsItsHoldersItsQueueAndItsHistory(t *testing.T) {
	w := newWorld(t)
	held := w.lock("n", dblock.Permits(2, 5), dblock.Owner("there", "worker-7"),
		dblock.Metadata(map[string]string{"order": "4711"}))
	w.waits("n", 1, dblock.Permits(4, 5))
	require.NoError(t, held.Record(t.Context(), "checked", "half of it"))
	w.contains(w.get("lock?name=n"), "worker-7", "2 of 5", "2 of 5 permits given out", "waits for 4 of 5 permits",
		"order</span> 4711", fmt.Sprint(held.Token()),
		"1 holder, 1 waiter, 5 permits", "checked", "half of it", "<svg class=\"queue\"")
}

func TestTheChainOfWaitingLeadsToWhoBlocksEverybody(t *testing.T) {
	w := newWorld(t)
	first := w.lock("orders/1")
	w.lock("tenant/1", dblock.Owner("there", "culprit"))
	w.waits("orders/1", 1)
	w.contains(w.get("lock?name=orders%2f1"), "what holds this one works, or hangs")
	w.waitsUnder(first.Context(), "tenant/1", 1)
	page := w.get("lock?name=orders%2f1")
	_, chain, _ := strings.Cut(page, `class="chain"`)
	w.contains(chain, "which waits for", "lock?name=tenant%2f1", "culprit")
	w.lacks(page, "cycle", "what holds this one works, or hangs")
}

func TestACycleIsMarked(t *testing.T) {
	w := newWorld(t)
	a, b := inspect.Participant{Host: "h", Thread: "a", Session: "s", Token: 1}, inspect.Participant{Host: "h",
		Thread: "b", Session: "s", Token: 2}
	infos := []inspect.Info{
		{Name: "x", Holders: []inspect.Participant{a}, Waiters: []inspect.Participant{b}, Queued: 1},
		{Name: "y", Holders: []inspect.Participant{b}, Waiters: []inspect.Participant{a}, Queued: 1},
	}
	w.server = serve(t, handlerOf(chained{named{}, infos}))
	_, chain, _ := strings.Cut(w.get("lock?name=x"), `id="chain"`)
	w.contains(chain, "They wait for each other in a cycle", `cycle</span> back to <a class="name" href="lock?name=x">`)
}

func TestAChainThatIsTooLongIsCut(t *testing.T) {
	w := newWorld(t)
	var infos []inspect.Info
	for i := range 150 {
		holder := inspect.Participant{Host: "h", Thread: fmt.Sprint(i), Session: "s", Token: 1}
		info := inspect.Info{Name: fmt.Sprintf("n%d", i), Holders: []inspect.Participant{holder}, Queued: 1}
		if i > 0 {
			info.Waiters = infos[i-1].Holders
		}
		infos = append(infos, info)
	}
	w.server = serve(t, handlerOf(chained{named{}, infos}))
	_, chain, _ := strings.Cut(w.get("lock?name=n0"), `id="chain"`)
	w.contains(chain, `lock?name=n99"`, `lock?name=n100">n<span class="whole">100</span></a> <small>(not followed further)</small>`)
	w.lacks(chain, "as above", `lock?name=n101"`)
}

func TestTheOverviewSaysWhenAHoldEndsAndItsToken(t *testing.T) {
	w := newWorld(t)
	held, waited := w.lock("held"), w.lock("waited")
	w.waits("waited", 1)
	page := w.get("")
	w.contains(page, fmt.Sprintf(">%d</td>", held.Token()), fmt.Sprintf(">%d</td>", waited.Token()))
	heads := strings.Split(page, "<thead>")
	if len(heads) != 3 || strings.Count(page, "data-until") != 2 {
		t.Fatalf("%d tables, %d ends: want two of each", len(heads)-1, strings.Count(page, "data-until"))
	}
	first, _, _ := strings.Cut(heads[1], "</thead>")
	second, _, _ := strings.Cut(heads[2], "</thead>")
	if first != second {
		t.Errorf("the tables do not line up:\n%s\n%s", first, second)
	}
}
