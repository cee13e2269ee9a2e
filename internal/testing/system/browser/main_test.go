package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// patience is for anything that a browser does.
const patience = time.Minute

// chromium is the browser of all tests. "": there is none.
var chromium struct {
	path   string
	once   sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	err    error
}

func TestMain(m *testing.M) {
	const variable, required = "DBLOCK_TEST_CHROMIUM", "required"
	if chromium.path = os.Getenv(variable); chromium.path == "" || chromium.path == required {
		chromium.path = ""
		for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
			if at, err := exec.LookPath(name); err == nil {
				chromium.path = at
				break
			}
		}
	}
	if chromium.path == "" && os.Getenv(variable) == required {
		fmt.Fprintln(os.Stderr, "no Chromium in PATH, and DBLOCK_TEST_CHROMIUM requires one")
		os.Exit(1)
	}
	goleak.VerifyTestMain(ending{m})
}

// ending ends the browser before goroutines are counted.
type ending struct{ *testing.M }

func (e ending) Run() int {
	code := e.M.Run()
	if chromium.cancel != nil {
		chromium.cancel()
	}
	return code
}

// start starts the browser, or skips the test.
func start(t *testing.T) context.Context {
	t.Helper()
	if chromium.path == "" {
		t.Skip("no Chromium: install the package chromium-headless-shell, or set DBLOCK_TEST_CHROMIUM")
	}
	chromium.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium.path),
			chromedp.NoSandbox, // as root there is none
			chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true),
			chromedp.WSURLReadTimeout(patience))
		allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, cancel := chromedp.NewContext(allocator)
		chromium.ctx, chromium.cancel = ctx, func() {
			_ = chromedp.Cancel(ctx) // waits for its end
			cancel()
			stop()
		}
		chromium.err = chromedp.Do(ctx)
	})
	require.NoError(t, chromium.err)
	return chromium.ctx
}

// tab is one of the browser, which a test has for itself.
type tab struct {
	*testing.T
	tab, ctx context.Context // of the browser's tab; the same with a time limit

	mu         sync.Mutex // protects complaints
	complaints []string   // of the browser: dialogs, exceptions, violations of the policy
}

// newTab opens a tab. What its pages make the browser complain of fails the test.
func newTab(t *testing.T, width, height int64) *tab {
	t.Helper()
	x := silent(t, width, height)
	t.Cleanup(func() {
		for _, complaint := range x.said() {
			t.Errorf("the browser: %s", complaint)
		}
	})
	return x
}

// silent is newTab for a test that looks at the complaints itself.
func silent(t *testing.T, width, height int64) *tab {
	t.Helper()
	own, cancel := chromedp.NewContext(start(t), chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	if err := chromedp.Do(own); err != nil { // opens it: a context with a time limit would end it
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(own, patience)
	t.Cleanup(stop)
	x := &tab{T: t, tab: own, ctx: ctx}
	x.do(chromedp.EmulateViewport(width, height))
	require.NoError(t, chromedp.Listen(ctx, x.listen))
	return x
}

// listen keeps what the browser complains of.
func (x *tab) listen(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Source == log.EntrySourceSecurity || strings.Contains(e.Entry.Text, "Content Security Policy") {
			x.complain(e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		x.complain(e.ExceptionDetails.Text)
	case *page.EventJavascriptDialogOpening:
		x.complain("a dialog: " + e.Message)
	}
}

func (x *tab) complain(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.complaints = append(x.complaints, text)
}

func (x *tab) said() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.complaints...)
}

func (x *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	x.Helper()
	require.NoError(x, chromedp.Do(x.ctx, steps...))
}

// open loads a page, and waits until it settles.
func (x *tab) open(url string) {
	x.Helper()
	x.do(chromedp.Navigate(url))
	x.settles()
}

// settles waits until the page's stream has begun where it has one, and until the browser has drawn
// the page: before that it drops keys and clicks.
func (x *tab) settles() {
	x.Helper()
	x.until(`!("live" in document.body.dataset) || document.getElementById("state").textContent === "Live"`)
	value[bool](x, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
}

// until waits until an expression is true, which it looks at with every frame. Unlike
// chromedp.Poll it needs no eval, which the page's policy forbids.
func (x *tab) until(expression string) {
	x.Helper()
	look := `new Promise((done) => { const look = () => { if (` + expression +
		`) done(true); else requestAnimationFrame(look); }; look(); })`
	_, err := chromedp.Run(x.ctx, chromedp.Evaluate[bool](look, chromedp.EvalAwaitPromise))
	// the page that looked is no more
	for err != nil && x.ctx.Err() == nil && strings.Contains(err.Error(), "navigated") {
		_, err = chromedp.Run(x.ctx, chromedp.Evaluate[bool](look, chromedp.EvalAwaitPromise))
	}
	if err != nil {
		x.Fatalf("%s: %v; the page says %.2000s", expression, err, x.text())
	}
}

// value is that of an expression, or of its promise.
func value[T any](x *tab, expression string) T {
	x.Helper()
	v, err := chromedp.Run(x.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(x, err, expression)
	return v
}

// shows waits until the page has a text.
func (x *tab) shows(text string) {
	x.Helper()
	x.until(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

func (x *tab) text() string {
	ctx, cancel := context.WithTimeout(x.tab, 5*time.Second)
	defer cancel()
	all, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	return all
}

// submits clicks, and waits for the page to which that leads. It clicks at a place, as a person
// does: chromedp.Click and chromedp.SendKeys fail where a page that has just come makes the
// browser number its nodes anew.
func (x *tab) submits(selector string) {
	x.Helper()
	x.settles()
	at := value[struct{ X, Y float64 }](x, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center", behavior: "instant"});
		const {x, y, width, height} = e.getBoundingClientRect();
		return {X: x + width / 2, Y: y + height / 2};
	})()`, selector))
	require.NoError(x, require.ErrOf(chromedp.RunResponse(x.ctx, chromedp.MouseClickXY(at.X, at.Y))), selector)
}

// focus gives an element the focus.
func (x *tab) focus(selector string) {
	x.Helper()
	x.settles()
	if !value[bool](x,
		fmt.Sprintf(
			`(() => { const e = document.querySelector(%q); e.focus(); return document.activeElement === e; })()`,
			selector)) {
		x.Fatalf("%s takes no focus", selector)
	}
}

// types gives an element the focus, and presses keys.
func (x *tab) types(selector, keys string) {
	x.Helper()
	x.focus(selector)
	x.do(chromedp.KeyEvent(keys))
}

// tx stands for an application's transactions.
type tx struct{}

// world is a database in memory, and the page of it, where everybody may act.
type world struct {
	*testing.T
	*dblocktest.Fake[tx]
	url string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	f := dblocktest.New[tx](t, dblock.WithHost("app-1"), dblock.WithApp("orders"), dblock.WithEvents())
	return &world{t, f, serve(t, dblockweb.Handler(f.Client, dblockweb.Authorize(everything)))}
}

func everything(*http.Request) dblockweb.Access { return dblockweb.Access{Look: true, Act: true} }

// serve serves a handler, and returns its address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.URL + "/"
}

func (w *world) lock(name string) *dblock.Lock {
	w.Helper()
	l, err := w.Client.Lock(w.Context(), name)
	require.NoError(w, err)
	return l
}

// waits has somebody wait for a name until the test ends.
func (w *world) waits(name string, n int) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		if l, err := w.Client.Lock(ctx, name); err == nil {
			_ = l.Unlock(context.Background())
		}
	}()
	w.AwaitQueue(w, name, n)
}
