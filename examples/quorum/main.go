// Command quorum keeps one lock in three databases, each an SQLite file of its own, and removes
// them one by one. Without one database the lock continues. Without two it is lost, and no client
// gets it. When they return, the lock can be taken again, with a higher token.
//
//	go run ./examples/quorum
//
// steps.go shows the use of package quorum.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/dblock-go/dblock/quorum"
)

func main() {
	ttl := flag.Duration("ttl", 2*time.Second,
		"after what time without a sign of life a database gives its part of the lock to others")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *ttl); err != nil {
		fmt.Fprintln(os.Stderr, "quorum:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, ttl time.Duration) (err error) {
	folder, err := os.MkdirTemp("", "dblock-quorum-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	var sites []*site
	var nodes []quorum.Node
	for _, name := range []string{"berlin", "paris", "rome"} {
		s, err := open(ctx, folder, name, ttl)
		if err != nil {
			return err
		}
		defer s.close()
		sites = append(sites, s)
		nodes = append(nodes, quorum.On(s.client).Named(name))
	}
	if err := quorum.Init(ctx, nodes...); err != nil { // once in the life of the three, by the script that makes them
		return err
	}
	client, err := quorum.New(nodes, quorum.WithQuarantine(2*ttl), quorum.WithPatience(ttl),
		quorum.WithNodeLimit(ttl/4))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	return play{ttl: ttl, sites: sites, client: client, out: out}.run(ctx)
}
