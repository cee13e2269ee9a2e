package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"os/user"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblockweb"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/jobs"
)

// shutdownTime is the time for answers in flight when the command ends: a Break has 15 s. Streams
// end at once.
const shutdownTime = 20 * time.Second

// ui serves the page.
func ui(o *options) *cobra.Command {
	var listen string
	var act, remote bool
	c := &cobra.Command{
		Use:   "ui",
		Short: "Show locks, queues, sessions and jobs as a web page on this machine, until ^C",
		Long: `ui serves a web page that follows what happens. It prints an address with a secret in it. A browser that opens it gets a cookie, without
which the page answers nothing. The cookie is for a random path: servers on other ports of this machine do not receive it. So other
users of this machine see nothing, unless they learn the address: a command that has it as an argument (xdg-open) shows it in the list
of processes. The page is read-only without --actions. After ^C it finishes its requests, a Break for up to 15 seconds; a second ^C
ends that too.

Only this machine reaches it. From another one: ssh -L 8080:127.0.0.1:PORT, with the port of the address, and open the address with 8080
instead. Or mount package dblockweb in a server with HTTPS and a login. With --remote it listens where --listen says, in plain HTTP:
anybody in between can read the secret.`,
		Example: "  dblock ui\n  dblock ui --listen 127.0.0.1:7171 --actions",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.looks = true
			ctx := c.Context()
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return usageError{fmt.Errorf("--listen: %w", err)}
			}
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
			if err != nil {
				return err
			}
			defer listener.Close()
			if !loopback(listener) && !remote {
				return usageError{fmt.Errorf("--listen %s: other machines reach that: use 127.0.0.1, or say --remote",
					listen)}
			}
			// The page shows an unavailable database.
			return o.using(ctx, func(d database) error {
				return d.locking(ctx, func(client *client) error {
					served, over := context.WithCancel(ctx)
					told := make(chan struct{})
					go func() {
						defer close(told)
						o.tellUnreadable(served, client)
					}()
					defer func() { over(); <-told }()
					return serve(ctx, c.OutOrStdout(), listener, dblockweb.Handler(client, authorize(act)))
				})
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "address and port; port 0: a free one")
	flags.BoolVar(&act, "actions", false, "the page can also ask holders for a lock, and take locks away")
	flags.BoolVar(&remote, "remote", false, "allow an address that other machines reach, unencrypted")
	return c
}

// tellUnreadable prints what the page cannot show. A page that shows nothing looks like a database
// without locks. It ends with the first error that is not about a right.
func (o *options) tellUnreadable(ctx context.Context, c *client) {
	limited, cancel := o.withinFirstSign(ctx)
	defer cancel()
	i := inspect.New(c)
	for _, part := range []struct {
		name string
		read func() error
	}{
		{"locks", func() error { return failure(i.List(limited, inspect.Filter{Limit: 1})) }},
		{"sessions", func() error { return failure(i.Sessions(limited, inspect.SessionFilter{Limit: 1})) }},
		{"jobs", func() error { return failure(jobs.New(c).Jobs(limited)) }},
		{"events", func() error { return failure(i.Events(limited, inspect.EventFilter{Limit: 1})) }},
	} {
		err := part.read()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			complain(o.stderr, fmt.Errorf("the page cannot show %s: %w", part.name, because(limited, advised(err))))
		}
		if err != nil && !errors.Is(err, dblock.ErrConfig) {
			return
		}
	}
}

// failure reads a first row, and returns the error of that.
func failure[T any](rows iter.Seq2[T, error]) error {
	for _, err := range rows {
		return err
	}
	return nil
}

func loopback(l net.Listener) bool { return l.Addr().(*net.TCPAddr).IP.IsLoopback() }

// authorize lets every visitor that the door admits look. If act is true, they act as this user.
func authorize(act bool) dblockweb.Option {
	access := dblockweb.Access{Look: true, Act: act}
	if who, err := user.Current(); err == nil {
		access.By = who.Username
	}
	return dblockweb.Authorize(func(*http.Request) dblockweb.Access { return access })
}

// serve serves the page until ctx ends, and then finishes the answers in flight, unless another
// signal comes.
func serve(ctx context.Context, out io.Writer, listener net.Listener, page http.Handler) error {
	d := newDoor(listener, streamsUntil(ctx, page))
	answers, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: d, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		BaseContext: func(net.Listener) context.Context { return answers },
		ErrorLog:    log.New(io.Discard, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if _, err := fmt.Fprintf(out, "http://%s/?%s=%s\n", d.address, ticket, d.secret); err != nil {
		return errors.Join(err, server.Close())
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing, stop := context.WithTimeout(answers, shutdownTime)
	defer stop()
	closing, hasty := signal.NotifyContext(closing, os.Interrupt, syscall.SIGTERM)
	defer hasty()
	if server.Shutdown(closing) != nil {
		_ = server.Close()
	}
	<-ended
	return nil
}

// streamsUntil also ends streams with over: they do not end by themselves.
func streamsUntil(over context.Context, page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(over, cancel)()
			r = r.WithContext(ctx)
		}
		page.ServeHTTP(w, r)
	})
}

// ticket is the parameter of the printed address that lets a browser in.
const ticket = "ticket"

// door admits visitors that have opened the printed address. Its port can be reached by everyone on
// this machine, including other users and pages of any site.
type door struct {
	page    http.Handler
	address string // as printed
	local   bool   // only this machine reaches it
	secret  string // the ticket
	pass    string // the cookie's value, in place of the ticket
	// root is the path of the page. It is random, because browsers send a cookie to all ports of a
	// host that are asked for its path.
	root string
}

// cookie is the cookie's name. Its path distinguishes it from the cookies of other doors.
const cookie = "dblock-ui"

func newDoor(l net.Listener, page http.Handler) door {
	return door{page: page, address: l.Addr().String(), local: loopback(l), secret: rand.Text(), pass: rand.Text(),
		root: "/" + rand.Text() + "/"}
}

func (d door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if d.local && !namesLoopback(r.Host) {
		http.Error(w, "This is dblock ui of another address.", http.StatusMisdirectedRequest)
		return
	}
	if r.Method == http.MethodGet && r.URL.Path == "/" && same(r.URL.Query().Get(ticket), d.secret) {
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: d.pass, Path: d.root, HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		// so that the secret does not stay in the address
		http.Redirect(w, r, d.root, http.StatusSeeOther)
		return
	}
	if c, err := r.Cookie(cookie); err != nil || !same(c.Value, d.pass) {
		http.Error(w, "Open the address that dblock ui has printed.", http.StatusUnauthorized)
		return
	}
	d.page.ServeHTTP(w, r)
}

// namesLoopback reports whether a request names this machine. A site whose name leads here (DNS
// rebinding) has another name. The port may be any: ssh -L has one of its own.
func namesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// same compares in constant time.
func same(given, secret string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(secret)) == 1
}
