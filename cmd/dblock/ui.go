package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblockweb"
)

// shutdownTime is for answers under way when the command ends. Streams end at once.
const shutdownTime = 2 * time.Second

// ui serves the page.
func ui(o *options) *cobra.Command {
	var listen string
	var act, remote bool
	c := &cobra.Command{
		Use:   "ui",
		Short: "Show locks, queues, sessions and jobs as a web page on this machine, until ^C",
		Long: `ui serves a web page that follows what happens. It prints an address with a secret in it: who has not opened that sees nothing, also not
other users of this machine. It is read-only without --actions.

Only this machine reaches it. With --remote it listens where --listen says, in plain HTTP: anybody in between can read the secret. Use
ssh -L instead, or mount package dblockweb in a server with HTTPS and a login.`,
		Example: "  dblock ui\n  dblock ui --listen 127.0.0.1:7171 --actions",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return o.inspect(c.Context(), func(ctx context.Context, i dblock.Inspector) error {
				listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
				if err != nil {
					return err
				}
				if !loopback(listener) && !remote {
					_ = listener.Close()
					return usageError{fmt.Errorf("--listen %s: other machines reach that: use 127.0.0.1, or say --remote", listen)}
				}
				return serve(ctx, c.OutOrStdout(), listener, i, act)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "address and port; port 0: a free one")
	flags.BoolVar(&act, "actions", false, "the page can also ask holders for a lock, and take locks away")
	flags.BoolVar(&remote, "remote", false, "allow an address that other machines reach, unencrypted")
	return c
}

func loopback(l net.Listener) bool { return l.Addr().(*net.TCPAddr).IP.IsLoopback() }

// serve serves the page until ctx ends.
func serve(ctx context.Context, out io.Writer, listener net.Listener, i dblock.Inspector, act bool) error {
	access := dblockweb.Access{Look: true, Act: act}
	if who, err := user.Current(); err == nil {
		access.By = who.Username
	}
	page := dblockweb.Handler(i, dblockweb.Authorize(func(*http.Request) dblockweb.Access { return access }))
	d := newDoor(listener, page)
	server := &http.Server{
		Handler: d, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with it
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
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close()
	}
	<-ended
	return nil
}

// ticket is the parameter of the printed address that lets a browser in.
const ticket = "ticket"

// door lets those in who have opened the printed address: everybody on this machine reaches its
// port, other users and pages of any site included.
type door struct {
	page    http.Handler
	address string   // as it is printed
	hosts   []string // that requests may name; nil: any
	secret  string
	cookie  string // its name has the port, since browsers keep one set of cookies for all ports
}

func newDoor(l net.Listener, page http.Handler) door {
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	d := door{page: page, address: l.Addr().String(), secret: rand.Text(), cookie: "dblock-ui-" + port}
	if loopback(l) {
		// A site whose name leads to this machine (DNS rebinding) is none of these.
		d.hosts = []string{d.address, "127.0.0.1:" + port, "[::1]:" + port, "localhost:" + port}
		if port == "80" { // which browsers leave out
			d.hosts = append(d.hosts, "127.0.0.1", "[::1]", "localhost")
		}
	}
	return d
}

func (d door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if d.hosts != nil && !slices.Contains(d.hosts, r.Host) {
		http.Error(w, "This is dblock ui of another address.", http.StatusMisdirectedRequest)
		return
	}
	if given := r.URL.Query().Get(ticket); r.Method == http.MethodGet && r.URL.Path == "/" && d.opens(given) {
		http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, "/", http.StatusSeeOther) // so that the secret does not stay in the address
		return
	}
	if c, err := r.Cookie(d.cookie); err != nil || !d.opens(c.Value) {
		http.Error(w, "Open the address that dblock ui has printed.", http.StatusUnauthorized)
		return
	}
	d.page.ServeHTTP(w, r)
}

func (d door) opens(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(d.secret)) == 1
}
