package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// page is dblock ui as a process, and a browser that has opened nothing yet.
type page struct {
	*world
	process *exec.Cmd
	address *url.URL // as it was printed
	browser *http.Client
}

// ui starts dblock ui.
func (w *world) ui(arguments ...string) *page {
	w.Helper()
	c := w.command(append([]string{"ui"}, arguments...)...)
	out, err := c.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := c.Start(); err != nil {
		w.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.Fatal(err)
	}
	address, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		w.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.Fatal(err)
	}
	return &page{w, c, address, &http.Client{Jar: jar}}
}

// ends interrupts it.
func (p *page) ends(by syscall.Signal) {
	p.Helper()
	if err := p.process.Process.Signal(by); err != nil {
		p.Fatal(err)
	}
	if err := p.process.Wait(); err != nil {
		p.Errorf("after %v: %v", by, err)
	}
}

// at is another address of the same server.
func (p *page) at(path string) string { return "http://" + p.address.Host + path }

func (p *page) do(client *http.Client, method, at string, form url.Values, headers ...string) (status int, body string) {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), method, at, strings.NewReader(form.Encode()))
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	response, err := client.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestUIShowsThePageToWhoHasOpenedItsAddress(t *testing.T) {
	eachKind(t, func(w *world) {
		held := w.lock("orders/1")
		p := w.ui()
		defer p.ends(syscall.SIGTERM)
		if host := p.address.Hostname(); host != "127.0.0.1" {
			t.Errorf("it listens at %s", host)
		}
		stranger := &http.Client{}
		for _, at := range []string{p.at("/"), p.at("/style.css"), p.at("/?ticket="), p.at("/?ticket=x"), p.at("/lock?name=orders%2f1&ticket=" + p.address.Query().Get("ticket"))} {
			if status, body := p.do(stranger, "GET", at, nil); status != http.StatusUnauthorized || strings.Contains(body, "orders") {
				t.Errorf("%s: %d: %s", at, status, body)
			}
		}
		status, body := p.do(p.browser, "GET", p.address.String(), nil)
		if contains(t, body, "orders/1"); status != http.StatusOK {
			t.Errorf("%d", status)
		}
		response, err := p.browser.Get(p.at("/"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK || response.Request.URL.RawQuery != "" {
			t.Errorf("%d at %s", response.StatusCode, response.Request.URL)
		}
		// Without --actions it is for looking.
		status, _ = p.do(p.browser, "POST", p.at("/break"), url.Values{"name": {"orders/1"}, "token": {fmt.Sprint(held.Token())}, "reason": {"because"}})
		if status != http.StatusNotFound || held.Context().Err() != nil {
			t.Errorf("a break without --actions: %d", status)
		}
	})
}

func TestUIGivesItsCookieToScriptsAndOtherSitesOfNobody(t *testing.T) {
	w := kinds["sqlite"].world(t)
	w.must("migrate", "up")
	p := w.ui()
	defer p.ends(syscall.SIGINT)
	p.browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := p.browser.Get(p.address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	cookies := response.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || !strings.HasSuffix(cookies[0].Name, p.address.Port()) {
		t.Errorf("%v", cookies)
	}
	if to := response.Header.Get("Location"); response.StatusCode != http.StatusSeeOther || to != "/" || response.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%d to %s", response.StatusCode, to)
	}
}

// A site whose name leads to this machine has the same origin as itself, and could read what it
// gets.
func TestUIAnswersUnderItsOwnAddressOnly(t *testing.T) {
	w := kinds["sqlite"].world(t)
	w.must("migrate", "up")
	p := w.ui()
	defer p.ends(syscall.SIGTERM)
	cookie := "dblock-ui-" + p.address.Port() + "=" + p.address.Query().Get("ticket")
	client := &http.Client{}
	for _, host := range []string{"evil.example", "evil.example:" + p.address.Port(), "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:" + p.address.Port(), "0.0.0.0:" + p.address.Port()} {
		if status, body := p.do(client, "GET", p.at("/"), nil, "Host", host, "Cookie", cookie); status != http.StatusMisdirectedRequest {
			t.Errorf("as %s: %d: %s", host, status, body)
		}
		if status, _ := p.do(client, "GET", p.address.String(), nil, "Host", host); status != http.StatusMisdirectedRequest {
			t.Errorf("as %s with the secret: %d", host, status)
		}
	}
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		if status, body := p.do(client, "GET", p.at("/"), nil, "Host", host+":"+p.address.Port(), "Cookie", cookie); status != http.StatusOK {
			t.Errorf("as %s: %d: %s", host, status, body)
		}
	}
}

func TestUITakesALockAwayWhereActionsAreAllowed(t *testing.T) {
	w := kinds["sqlite"].world(t)
	w.must("migrate", "up")
	held := w.lock("n")
	p := w.ui("--actions")
	defer p.ends(syscall.SIGTERM)
	_, body := p.do(p.browser, "GET", p.address.String(), nil)
	contains(t, body, "lock?name=n")
	form := url.Values{"name": {"n"}, "token": {fmt.Sprint(held.Token())}, "reason": {"the host is gone"}}
	if status, body := p.do(p.browser, "POST", p.at("/break"), form, "Origin", "http://evil.example"); status != http.StatusForbidden || held.Context().Err() != nil {
		t.Errorf("from another site: %d: %s", status, body)
	}
	status, body := p.do(p.browser, "POST", p.at("/break"), form, "Origin", p.at(""))
	if contains(t, body, "was taken away"); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	<-held.Context().Done()
	contains(t, w.must("events", "--kind", "broken"), ": the host is gone")
}

func TestUIEndsWhileSomebodyLooks(t *testing.T) {
	w := kinds["sqlite"].world(t)
	w.must("migrate", "up")
	p := w.ui()
	p.do(p.browser, "GET", p.address.String(), nil)
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.at("/lock?name=n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := p.browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	stream := bufio.NewReader(response.Body)
	for line := ""; !strings.HasPrefix(line, "data: "); {
		if line, err = stream.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	p.ends(syscall.SIGINT)
	if _, err := io.ReadAll(stream); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(*net.OpError)) {
		t.Errorf("the stream: %v", err)
	}
	s := w.run("sessions")
	if contains(t, s.out+s.err, "No client has taken a lock"); s.status != 0 {
		t.Errorf("its session was left behind: %+v", s)
	}
}

func TestUIRefusesToListenForOthersUnlessItIsTold(t *testing.T) {
	w := kinds["sqlite"].world(t)
	w.must("migrate", "up")
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		if s := w.run("ui", "--listen", listen); s.status != exitUsage || !strings.Contains(s.err, "--remote") || s.out != "" {
			t.Errorf("%s: %+v", listen, s)
		}
	}
	p := w.ui("--listen", "0.0.0.0:0", "--remote")
	defer p.ends(syscall.SIGTERM)
	if status, _ := p.do(&http.Client{}, "GET", "http://127.0.0.1:"+p.address.Port()+"/", nil); status != http.StatusUnauthorized {
		t.Errorf("without the secret: %d", status)
	}
	if status, _ := p.do(p.browser, "GET", "http://127.0.0.1:"+p.address.Port()+p.address.RequestURI(), nil); status != http.StatusOK {
		t.Errorf("with it: %d", status)
	}
}
