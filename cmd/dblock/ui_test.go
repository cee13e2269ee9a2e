package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// page is dblock ui as a process, and a browser that has opened nothing yet.
type page struct {
	*world
	process *exec.Cmd
	address *url.URL // as it was printed
	root    string   // to which that leads
	browser *http.Client
}

// ui starts dblock ui.
func (w *world) ui(arguments ...string) *page {
	w.Helper()
	c := w.command(append([]string{"ui"}, arguments...)...)
	out, err := c.StdoutPipe()
	require.NoError(w, err)
	require.NoError(w, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(w, err)
	address, err := url.Parse(strings.TrimSpace(line))
	require.NoError(w, err)
	jar, err := cookiejar.New(nil)
	require.NoError(w, err)
	return &page{world: w, process: c, address: address, browser: &http.Client{Jar: jar}}
}

// ends interrupts it.
func (p *page) ends(by syscall.Signal) {
	p.Helper()
	require.NoError(p, p.process.Process.Signal(by))
	assert.NoError(p, p.process.Wait(), "after", by)
}

// opens opens the printed address, and returns what that shows.
func (p *page) opens() string {
	p.Helper()
	response, err := p.browser.Get(p.address.String())
	require.NoError(p, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if p.root = response.Request.URL.Path; err != nil || response.StatusCode != http.StatusOK ||
		response.Request.URL.RawQuery != "" {
		p.Fatalf("%d at %s: %v", response.StatusCode, response.Request.URL, err)
	}
	return string(body)
}

// at is a page of the same server, once it has been opened.
func (p *page) at(name string) string { return "http://" + p.address.Host + p.root + name }

func (p *page) do(
	client *http.Client, method, at string, form url.Values, headers ...string,
) (status int, body string) {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), method, at, strings.NewReader(form.Encode()))
	require.NoError(p, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	response, err := client.Do(r)
	require.NoError(p, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(p, err)
	return response.StatusCode, string(text)
}

// fullDisk is a writer that takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Broken by an end that waits until a silent database has told what the page cannot show.
func TestUIEndsWhereItsAddressCannotBeWritten(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	c := root(&options{getenv: environment("DBLOCK_DSN=postgres://a@" + silent.Addr().String() + "/x"),
		stderr: io.Discard, release: func() {}})
	c.SetArgs([]string{"ui", "--timeout", "0"})
	c.SetOut(fullDisk{})
	assert.ErrorIs(t, c.ExecuteContext(t.Context()), syscall.ENOSPC)
}

func TestUIShowsThePageToWhoHasOpenedItsAddress(t *testing.T) {
	eachKind(t, func(w *world) {
		held := w.lock("orders/1")
		p := w.ui()
		defer p.ends(syscall.SIGTERM)
		assert.Equal(t, p.address.Hostname(), "127.0.0.1", "it listens at")
		contains(t, p.opens(), "orders/1")
		if body := p.opens(); !strings.Contains(body, "orders/1") || len(p.root) < 26 {
			t.Errorf("once more, at %s: %s", p.root, body)
		}
		ticket := p.address.RawQuery
		origin := "http://" + p.address.Host
		stranger := &http.Client{}
		for _, at := range []string{origin, p.at(""), p.at("style.css"), origin + "/?ticket=", origin + "/?ticket=x",
			p.at("?" + ticket), p.at("lock?name=orders%2f1&" + ticket)} {
			for _, cookie := range []string{"", "dblock-ui=", "dblock-ui=" + p.address.Query().Get("ticket")} {
				if status, body := p.do(stranger, "GET", at, nil, "Cookie",
					cookie); status != http.StatusUnauthorized || strings.Contains(body, "orders") {
					t.Errorf("%s: %d: %s", at, status, body)
				}
			}
		}
		// Without --actions it is for looking.
		status, _ := p.do(p.browser, "POST", p.at("break"), url.Values{"name": {"orders/1"},
			"token": {fmt.Sprint(held.Token())}, "reason": {"because"}})
		if status != http.StatusNotFound || held.Context().Err() != nil {
			t.Errorf("a break without --actions: %d", status)
		}
	})
}

// cookie opens the printed address as it is, and returns the cookie that it gives.
func (p *page) cookie() *http.Cookie { p.Helper(); return p.cookieBy(http.DefaultTransport) }

func (p *page) cookieBy(transport http.RoundTripper) *http.Cookie {
	p.Helper()
	response, err := transport.RoundTrip(httptest.NewRequestWithContext(p.Context(), "GET", p.address.String(), nil))
	require.NoError(p, err)
	defer response.Body.Close()
	cookies := response.Cookies()
	if len(cookies) != 1 || response.StatusCode != http.StatusSeeOther ||
		response.Header.Get("Location") != cookies[0].Path || response.Header.Get("Referrer-Policy") != "no-referrer" {
		p.Fatalf("%d, %v", response.StatusCode, response.Header)
	}
	p.root = cookies[0].Path
	return cookies[0]
}

// Browsers send a cookie to every port of a host, where other users of the machine may listen.
func TestUIKeepsItsCookieFromScriptsOtherSitesAndOtherPorts(t *testing.T) {
	w := onSQLite(t)
	p := w.ui()
	defer p.ends(syscall.SIGINT)
	c := p.cookie()
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Value == p.address.Query().Get("ticket") {
		t.Errorf("%v", c)
	}
	got := make(chan *http.Request, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }))
	defer other.Close()
	p.opens()
	for _, path := range []string{"/", "/lock?name=n", "/" + strings.Repeat("A", 26) + "/"} {
		p.do(p.browser, "GET", other.URL+path, nil)
		if r := <-got; len(r.Cookies()) > 0 {
			t.Errorf("the server of another port gets %v", r.Cookies())
		}
	}
}

// A site whose name leads to this machine has the same origin as itself, and could read what it
// gets. A tunnel has another port.
func TestUIAnswersUnderItsOwnAddressOnly(t *testing.T) {
	w := onSQLite(t)
	p := w.ui()
	defer p.ends(syscall.SIGTERM)
	c := p.cookie()
	cookie, port := c.Name+"="+c.Value, ":"+p.address.Port()
	client := &http.Client{}
	for _, host := range []string{
		"evil.example", "evil.example" + port, "localhost.evil.example" + port, "127.0.0.1.evil.example" + port,
		"0.0.0.0" + port, "[::]" + port, "192.0.2.1" + port, "localhost:1:2",
	} {
		if status, body := p.do(client, "GET", p.at(""), nil, "Host", host, "Cookie",
			cookie); status != http.StatusMisdirectedRequest {
			t.Errorf("as %s: %d: %s", host, status, body)
		}
		if status, _ := p.do(client, "GET", p.address.String(), nil, "Host",
			host); status != http.StatusMisdirectedRequest {
			t.Errorf("as %s with the secret: %d", host, status)
		}
	}
	for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
		for _, host := range []string{name + port, name + ":8080", name} {
			if status, body := p.do(client, "GET", p.at(""), nil, "Host", host, "Cookie", cookie, "Origin",
				"http://"+host); status != http.StatusOK {
				t.Errorf("as %s: %d: %s", host, status, body)
			}
		}
	}
}

func TestUITakesALockAwayWhereActionsAreAllowed(t *testing.T) {
	w := onSQLite(t)
	held := w.lock("n")
	held.Asked() // a listener hears of it at once
	p := w.ui("--actions")
	defer p.ends(syscall.SIGTERM)
	contains(t, p.opens(), "lock?name=n")
	c := p.cookie()
	form := url.Values{"name": {"n"}, "token": {fmt.Sprint(held.Token())}, "reason": {"the host is gone"}}
	if status, body := p.do(p.browser, "POST", p.at("break"), form, "Origin",
		"http://evil.example"); status != http.StatusForbidden || held.Context().Err() != nil {
		t.Errorf("from another site: %d: %s", status, body)
	}
	// a tunnel
	status, body := p.do(p.browser, "POST", p.at("break"), form, "Host", "localhost:8080", "Origin",
		"http://localhost:8080", "Cookie", c.Name+"="+c.Value)
	if contains(t, body, "was revoked"); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	select {
	case <-held.Context().Done():
	case <-time.After(time.Minute):
		t.Fatal("the holder was not told")
	}
	contains(t, w.must("events", "--kind", "broken"), ": the host is gone")
}

func TestUIEndsWhileSomebodyLooks(t *testing.T) {
	w := onSQLite(t)
	p := w.ui()
	p.opens()
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.at("lock?name=n"), nil)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	response, err := p.browser.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	stream := bufio.NewReader(response.Body)
	for line := ""; !strings.HasPrefix(line, "data: "); {
		if line, err = stream.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	p.ends(syscall.SIGINT)
	if _, err := io.ReadAll(stream); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) &&
		!errors.As(err, new(*net.OpError)) {
		t.Errorf("the stream: %v", err)
	}
	s := w.run("sessions")
	if contains(t, s.out+s.err, "No client has a session"); s.status != 0 {
		t.Errorf("its session was left behind: %+v", s)
	}
}

func TestUIRefusesToListenForOthersUnlessItIsTold(t *testing.T) {
	w := onSQLite(t)
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		if s := w.run("ui", "--listen", listen); s.status != exitUsage || !strings.Contains(s.err, "--remote") ||
			s.out != "" {
			t.Errorf("%s: %+v", listen, s)
		}
	}
	p := w.ui("--listen", "0.0.0.0:0", "--remote")
	defer p.ends(syscall.SIGTERM)
	if status, _ := p.do(&http.Client{}, "GET", "http://127.0.0.1:"+p.address.Port()+"/",
		nil); status != http.StatusUnauthorized {
		t.Errorf("without the secret: %d", status)
	}
	if status, _ := p.do(p.browser, "GET", "http://127.0.0.1:"+p.address.Port()+p.address.RequestURI(),
		nil); status != http.StatusOK {
		t.Errorf("with it: %d", status)
	}
}

// slow is a Source. Its Break waits until the test lets it go on.
type slow struct {
	dblockweb.Source
	began, release chan struct{}
}

func (s slow) Break(ctx context.Context, _, _ string, _ ...int64) (int, error) {
	close(s.began)
	select {
	case <-s.release:
	case <-ctx.Done():
	}
	return 1, ctx.Err()
}

func (s slow) Sessions(context.Context, inspect.SessionFilter) iter.Seq2[inspect.Session, error] {
	return func(func(inspect.Session, error) bool) {}
}

// pipes is a listener. Its connections stay in this process, so that a bubble has them.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, is := <-p
	if !is {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7171} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

// Shutdown waits for them. Streams end at once.
func TestUIFinishesItsAnswersAtTheEnd(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // its goroutine is for all tests, and none of the bubble
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		i := slow{began: make(chan struct{}), release: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		in, out := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, out, listener, dblockweb.HandlerOf(i, authorize(true))) }()
		line, err := bufio.NewReader(in).ReadString('\n')
		require.NoError(t, err)
		address, err := url.Parse(strings.TrimSpace(line))
		require.NoError(t, err)
		transport := &http.Transport{DialContext: listener.dial, DisableKeepAlives: true}
		c := (&page{world: &world{T: t}, address: address}).cookieBy(transport)
		ask := func(method, at string, form url.Values, accept string) *http.Response {
			r := httptest.NewRequestWithContext(t.Context(), method, "http://"+address.Host+c.Path+at,
				strings.NewReader(form.Encode()))
			r.Header.Set("Accept", accept)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.AddCookie(c)
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return &http.Response{Body: http.NoBody}
			}
			return response
		}
		stream := ask("GET", "sessions", nil, "text/event-stream")
		defer stream.Body.Close()
		answer := make(chan *http.Response, 1)
		go func() {
			form := url.Values{"name": {"n"}, "token": {"7"}, "reason": {"because"}}
			answer <- ask("POST", "break", form, "text/html")
		}()
		<-i.began
		began := time.Now()
		cancel()
		if _, err := io.ReadAll(stream.Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the stream: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the stream ended after %v", took)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("it ended before its answer: %v", err)
		default:
		}
		close(i.release)
		response := <-answer
		body, err := io.ReadAll(response.Body)
		if response.Body.Close(); response.StatusCode != http.StatusOK || err != nil {
			t.Errorf("%d, %v: %s", response.StatusCode, err, body)
		}
		assert.NoError(t, <-ended)
	})
}
