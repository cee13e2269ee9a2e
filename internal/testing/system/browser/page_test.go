package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestAnUpdateArrivesByItself(t *testing.T) {
	w := newWorld(t)
	x := newTab(t, 1000, 700)
	x.open(w.url)
	x.shows("No other lock is held")
	w.lock("orders/1")
	x.shows("orders/1")
	// What has not changed stays what it is: the browser draws nothing anew.
	value[bool](x, `(window.row = document.querySelector('[data-key="orders/1"]')).isConnected`)
	w.lock("orders/0")
	x.shows("orders/0")
	if !value[bool](x, `window.row.isConnected && window.row === document.querySelector('[data-key="orders/1"]')`) {
		t.Error("the row was made anew")
	}
	w.waits("orders/1", 1)
	x.until(`document.querySelector('#waited').nextElementSibling.innerText.includes("orders/1")`)

	x.open(w.url + "lock?name=orders%2f1")
	x.shows("1 waiter,")
	w.waits("orders/1", 2)
	x.shows("2 waiters,")
	x.until(`document.querySelectorAll(".queue .waiter").length === 1`) // of one client, in one place
}

func TestThePageSaysThatTheDatabaseIsAwayAndComesBack(t *testing.T) {
	w := newWorld(t)
	w.lock("orders/1")
	x := newTab(t, 1000, 700)
	x.open(w.url)
	x.shows("orders/1")
	w.Down()
	x.until(
		`!document.getElementById("problem").hidden && document.getElementById("state").textContent === "Waiting for the database"`)
	x.shows("orders/1") // what was read last
	w.Up()
	x.until(`document.getElementById("problem").hidden && document.getElementById("state").textContent === "Live"`)
}

func TestABreakNeedsConfirmationAndTakesFromWhoWasSeen(t *testing.T) {
	w := newWorld(t)
	seen := w.lock("n")
	x := newTab(t, 1000, 700)
	x.open(w.url)
	confirm := func() {
		x.submits(`a[href="lock?name=n"]`)
		x.submits(`a.danger`)
		x.shows("Only this holder loses the lock")
		x.types(`input[name=reason]`, "it looked dead")
	}
	confirm()
	require.NoError(t, context.Cause(seen.Context()), "without confirmation")
	// The page follows: while a person writes, it says that the holder has gone.
	require.NoError(t, seen.Unlock(t.Context()))
	next := w.lock("n")
	x.shows("There is nothing to break")

	x.open(w.url)
	confirm()
	x.submits(`button.danger`)
	x.shows(fmt.Sprintf("was revoked from the holder with token %d", next.Token()))
	<-next.Context().Done()
	assert.ErrorIs(t, context.Cause(next.Context()), dblock.ErrLost, "the holder")
}

func TestFocusAndTypedTextSurviveAnUpdate(t *testing.T) {
	w := newWorld(t)
	x := newTab(t, 1000, 700)
	x.open(w.url)
	x.types(`input[name=prefix]`, "ord")
	w.lock("orders/1")
	x.shows("orders/1")
	if got := value[string](x,
		`document.activeElement.name + "=" + document.activeElement.value`); got != "prefix=ord" {
		t.Errorf("after an update: %s", got)
	}
	x.do(chromedp.KeyEvent("ers"))
	x.focus(`a[href="lock?name=orders%2f1"]`)
	for _, name := range []string{"a", "b", "z"} {
		w.lock(name)
		x.until(`document.querySelector('[data-key="` + name + `"]')`)
		if got := value[string](x, `document.activeElement.getAttribute("href")`); got != "lock?name=orders%2f1" {
			t.Errorf("after an update %s has the focus", got)
		}
	}
	if got := value[string](x, `document.querySelector("input[name=prefix]").value`); got != "orders" {
		t.Errorf("typed text: %q", got)
	}

	held := w.lock("n")
	x.open(fmt.Sprintf("%sbreak?name=n&token=%d", w.url, held.Token()))
	x.types(`input[name=reason]`, "the host")
	w.waits("n", 1)
	x.until(`document.querySelector("dl dd:last-of-type").innerText === "1"`)
	x.do(chromedp.KeyEvent(" is gone"))
	if got := value[string](x, `document.querySelector("input[name=reason]").value`); got != "the host is gone" {
		t.Errorf("typed text: %q", got)
	}
}

func TestTheKeyboardLeadsFromTheOverviewToALock(t *testing.T) {
	w := newWorld(t)
	w.lock("orders/1")
	x := newTab(t, 1000, 700)
	x.open(w.url)
	x.do(chromedp.KeyEvent(kb.Tab))
	assert.Equal(t, value[string](x, "document.activeElement.textContent"), "Skip to content", "the first stop is")
	x.do(chromedp.KeyEvent("/"))
	if got := value[string](x, `document.activeElement.name || ""`); got != "prefix" {
		t.Errorf("after / %q has the focus", got)
	}
	for range 20 {
		x.do(chromedp.KeyEvent(kb.Tab))
		if value[string](x, `document.activeElement.getAttribute("href") || ""`) == "lock?name=orders%2f1" {
			if !value[bool](x, `getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
				t.Error("the focus cannot be seen")
			}
			require.NoError(t, require.ErrOf(chromedp.RunResponse(x.ctx, chromedp.KeyEvent(kb.Enter))))
			x.until(`location.pathname === "/lock" && document.querySelector("h1").innerText === "orders/1"`)
			return
		}
	}
	t.Error("Tab does not lead to the lock")
}

// long is the longest name there is, with no place to break it.
var long = strings.Repeat("w", 255)

// everyPage are the pages of a scene.
var everyPage = []string{
	"", "lock?name=orders%2f4711", "lock?name=export", "lock?name=" + long, "ask?name=" + long, "sessions", "jobs",
	"job?name=backup%2feu", "job?name=" + long,
	"lock?name=indexer", "elections", "events", "lock?name=nobody", "events?before=x",
}

func TestNoPageScrollsSidewaysOnANarrowScreen(t *testing.T) {
	s := newScene(long)
	url := serve(t, dblockweb.HandlerOf(s, dblockweb.Authorize(everything)))
	pages := append(everyPage, fmt.Sprintf("break?name=%s&token=%d", long, s.infos[len(s.infos)-1].Token))
	for _, width := range []int64{390, 1000} {
		x := newTab(t, width, 800)
		for _, page := range pages {
			x.open(url + page)
			if got := value[int64](x, "document.documentElement.scrollWidth"); got > width {
				t.Errorf("%.40s: %d wide on a screen of %d", page, got, width)
			}
		}
	}
}

// Broken by a column that a phone does not show, and by a word that does not break.
func TestEventsFoldOnANarrowScreen(t *testing.T) {
	url := serve(t, dblockweb.HandlerOf(newScene(long), dblockweb.Authorize(everything)))
	for _, page := range []string{"events", "lock?name=" + long, "lock?name=orders%2f4711"} {
		x := newTab(t, 390, 800)
		x.open(url + page)
		const wider = `[...document.querySelectorAll(".events td")].filter((td) => td.checkVisibility() && (
			td.scrollWidth > td.clientWidth || td.getBoundingClientRect().right > innerWidth)).length`
		if n := value[int](x, wider); n > 0 {
			t.Errorf("%.40s: %d cells are wider than their place", page, n)
		}
		if page == "events" {
			x.shows("alice: host is gone, ticket 123")
			x.shows("admin-1")
		}
	}
}

// contrast is the lowest of all texts that a page shows (WCAG 2), with what has it.
const contrast = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	let lowest = 21, who = "";
	for (const node of document.querySelectorAll("body *:not(svg):not(svg *)")) {
		if (![...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !node.checkVisibility() || node.className === "skip") continue;
		let back = node;
		while (back && rgba(getComputedStyle(back).backgroundColor)[3] < 255) back = back.parentElement;
		const a = light(rgba(getComputedStyle(node).color)), b = light(back ? rgba(getComputedStyle(back).backgroundColor) : [255, 255, 255]);
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < lowest) { lowest = ratio; who = node.outerHTML.slice(0, 120); }
	}
	return { lowest, who };
})()`

func TestTextsStandOutInLightAndDark(t *testing.T) {
	url := serve(t, dblockweb.HandlerOf(newScene(""), dblockweb.Authorize(everything)))
	for _, scheme := range []string{"light", "dark"} {
		x := newTab(t, 1000, 800)
		x.scheme(scheme)
		for _, page := range []string{"", "lock?name=orders%2f4711", "jobs", "job?name=backup%2feu", "elections",
			"events", "sessions", "events?before=x"} {
			x.open(url + page)
			got := value[struct {
				Lowest float64 `json:"lowest"`
				Who    string  `json:"who"`
			}](x, contrast)
			if got.Lowest < 4.5 {
				t.Errorf("%s, %s: a contrast of %.1f: %s", scheme, page, got.Lowest, got.Who)
			}
		}
	}
}

// aligned: each header stands where the texts or numbers below it stand.
const aligned = `(() => {
	const right = (cell) => getComputedStyle(cell).textAlign === "right";
	return [...document.querySelectorAll("tbody td:not([colspan])")].every((td) =>
		right(td) === right(td.closest("table").tHead.rows[0].cells[td.cellIndex]));
})()`

func TestEveryPartOfAPageHasAName(t *testing.T) {
	url := serve(t, dblockweb.HandlerOf(newScene(""), dblockweb.Authorize(everything)))
	x := newTab(t, 1000, 800)
	for _, page := range everyPage {
		x.open(url + page)
		for _, rule := range []string{
			`document.title && document.documentElement.lang === "en" && document.querySelectorAll("main").length === 1`,
			`document.querySelectorAll("h1").length === 1 || !document.getElementById("problem").hidden`,
			`[...document.querySelectorAll("th")].every((th) => th.scope === "col" && th.textContent.trim())`,
			aligned,
			`[...document.querySelectorAll("input:not([type=hidden])")].every((input) => input.labels.length === 1)`,
			`[...document.querySelectorAll("svg")].every((svg) => svg.getAttribute("aria-hidden") || svg.getAttribute("aria-label"))`,
			`[...document.querySelectorAll("[aria-labelledby]")].every((part) => document.getElementById(part.getAttribute("aria-labelledby")))`,
			`[...document.querySelectorAll("[id]")].every((part) => document.querySelectorAll("#" + part.id).length === 1)`,
		} {
			if !value[bool](x, "Boolean("+rule+")") {
				t.Errorf("%.40s: not so: %s", page, rule)
			}
		}
	}
}
