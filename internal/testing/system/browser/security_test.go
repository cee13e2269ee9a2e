package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
)

// hostile run a script where they are not escaped.
var hostile = []string{
	"<script>window.pwned = 1</script>", `<img src=x onerror="window.pwned = 1">`,
	`" onfocus="window.pwned = 1" autofocus="`,
	"javascript:window.pwned = 1", "</main><svg onload='window.pwned = 1'>",
	"</title><script>window.pwned = 1</script>",
}

func TestNoScriptOfANameRuns(t *testing.T) {
	for _, name := range hostile {
		s := newScene(name)
		at := serve(t, dblockweb.HandlerOf(s, dblockweb.Authorize(everything)))
		x := newTab(t, 1000, 800) // also fails if the policy is violated
		for _, page := range []string{
			"", "lock?name=" + url.QueryEscape(name), "events", "elections", "jobs",
			"job?name=" + url.QueryEscape(name), "ask?name=" + url.QueryEscape(name),
			fmt.Sprintf("break?name=%s&token=%d", url.QueryEscape(name), s.infos[len(s.infos)-1].Token),
			"?prefix=" + url.QueryEscape(name), "sessions?host=" + url.QueryEscape(name),
		} {
			x.open(at + page)
			if value[bool](x, "'pwned' in window") {
				t.Errorf("%s: %s ran", page, name)
			}
			if !value[bool](x, fmt.Sprintf("document.documentElement.textContent.includes(%q) || "+
				"[...document.querySelectorAll('input')].some((i) => i.value === %q)", name, name)) {
				if !strings.HasPrefix(page, "?") && page != "" && !strings.HasPrefix(page, "sessions") {
					t.Errorf("%s does not show %s", page, name)
				}
			}
		}
	}
}

// The policy is in force, so that a mistake in a template is not the end.
func TestThePolicyForbidsWhatAPageDoesNotNeed(t *testing.T) {
	at := serve(t, dblockweb.HandlerOf(newScene(""), dblockweb.Authorize(everything)))
	x := silent(t, 1000, 800)
	x.open(at)
	for what, do := range map[string]string{
		"script-src-elem": `const s = document.createElement("script"); s.textContent = "window.pwned = 1"; document.body.append(s)`,
		"script-src-attr": `const b = document.createElement("b"); b.setAttribute("onclick", "window.pwned = 1"); document.body.append(b); b.click()`,
		"style-src-elem":  `const s = document.createElement("style"); s.textContent = "body { display: none }"; document.body.append(s)`,
		"connect-src":     `fetch("http://127.0.0.1:1/").catch(() => 0)`,
		"img-src":         `new Image().src = "http://127.0.0.1:1/"`,
		"base-uri":        `const b = document.createElement("base"); b.href = "http://127.0.0.1:1/"; document.head.append(b)`,
	} {
		got := value[string](x,
			`new Promise((done) => { document.addEventListener("securitypolicyviolation", (e) => done(e.effectiveDirective), { once: true }); `+do+` })`)
		if got != what || value[bool](x, "'pwned' in window") {
			t.Errorf("%s: %s was violated", what, got)
		}
	}
	if len(x.said()) == 0 {
		t.Error("the browser did not complain: the other tests would not see it either")
	}
}

// attack does on a page of another site what one would try, and tells what it could read.
const attack = `async (target, form) => {
	const read = [];
	const note = (how, what) => read.push(how + ": " + String(what).slice(0, 80));
	for (const mode of ["cors", "no-cors"]) {
		for (const page of ["", "lock?name=n", "live.js"]) {
			await fetch(target + page, { mode, credentials: "include" }).then((r) => r.text()).then((text) => { if (text) note("fetch", text); }).catch(() => 0);
		}
		await fetch(target + "break", { method: "POST", mode, credentials: "include", body: new URLSearchParams(form) }).then((r) => r.text()).then((text) => { if (text) note("post", text); }).catch(() => 0);
	}
	await new Promise((done) => {
		const stream = new EventSource(target + "lock?name=n", { withCredentials: true });
		stream.addEventListener("main", (e) => { note("stream", e.data); stream.close(); done(); });
		stream.onerror = () => { stream.close(); done(); };
	});
	await new Promise((done) => {
		const frame = document.createElement("iframe");
		frame.onload = () => { try { note("frame", frame.contentDocument.body.innerText); } catch { } done(); };
		frame.src = target;
		document.body.append(frame);
	});
	await new Promise((done) => {
		const script = document.createElement("script");
		script.onload = () => { note("script", "it was loaded"); done(); };
		script.onerror = done;
		script.src = target + "live.js";
		document.body.append(script);
	});
	const sends = (name) => new Promise((done) => {
		const frame = document.createElement("iframe");
		frame.name = name;
		document.body.append(frame);
		const f = document.createElement("form");
		f.method = "post";
		f.action = target + "break";
		f.target = name;
		for (const [key, value] of Object.entries(form)) {
			const input = document.createElement("input");
			input.name = key;
			input.value = value;
			f.append(input);
		}
		document.body.append(f);
		frame.onload = done;
		f.submit();
	});
	await sends("hidden");
	return read;
}`

func TestNothingWorksFromAnotherSite(t *testing.T) {
	w := newWorld(t)
	held := w.lock("n")
	var mu sync.Mutex
	answered := map[string]int{} // by what was asked for, and by whom
	page := dblockweb.Handler(w.Client, dblockweb.Authorize(everything))
	target := serve(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: out, status: http.StatusOK}
		page.ServeHTTP(s, r)
		mu.Lock()
		defer mu.Unlock()
		answered[fmt.Sprintf("%s %s of %s, for %s", r.Method, r.URL.Path, r.Header.Get("Sec-Fetch-Site"),
			r.Header.Get("Sec-Fetch-Dest"))] = s.status
	}))
	evil := serve(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Content-Type", "text/html")
		fmt.Fprint(out, "<!DOCTYPE html><body>a page of another site</body>")
	}))
	form := fmt.Sprintf(`{ name: "n", token: "%d", reason: "because" }`, held.Token())
	for who, from := range map[string]string{
		"same-site":  evil,                                               // another port
		"cross-site": strings.Replace(evil, "127.0.0.1", "localhost", 1), // another host
	} {
		x := silent(t, 1000, 800)
		x.open(from)
		for _, read := range value[[]string](x, fmt.Sprintf("(%s)(%q, %s)", attack, target, form)) {
			t.Errorf("%s could read %s", who, read)
		}
		// As the page that a person sees.
		value[bool](x, fmt.Sprintf(`(() => { const f = document.createElement("form"); f.method = "post"; f.action = %q; for (const [k, v] of Object.entries(%s)) {
			const i = document.createElement("input"); i.name = k; i.value = v; f.append(i); } document.body.append(f); setTimeout(() => f.submit()); return true; })()`, target+"break", form))
		x.shows("This request comes from another site")
	}
	mu.Lock()
	defer mu.Unlock()
	seen := 0
	for what, status := range answered {
		if strings.Contains(what, "same-site") || strings.Contains(what, "cross-site") {
			if seen++; status != http.StatusForbidden {
				t.Errorf("%s: %d", what, status)
			}
		}
	}
	if seen < 8 {
		t.Errorf("the attack did not reach the page: %v", answered)
	}
	assert.NoError(t, context.Cause(held.Context()), "the holder")
	if info, err := inspect.New(w.Client).Lock(t.Context(), "n"); err != nil || len(info.Holders) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// statusWriter knows its status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
