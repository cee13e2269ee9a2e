//go:build linux

package clusters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/program"
)

// mysqlNode is a server of a group, or of Galera.
type mysqlNode struct {
	*program.Supervised
	address string
	ports   []string // those that it listens on
	pool    *sql.DB  // to ask it what it is
}

// accounts are those under which the nodes run: by their account packets are told apart, since all
// nodes have the same address. Debian has them, and Red Hat.
var accounts = [nodes]string{"daemon", "games", "mail"}

// nodes is how many a cluster has.
const nodes = 3

// restartPause is the time until a node that has ended by itself is started again, as systemd does
// with RestartSec.
const restartPause = 5 * time.Second

// patience is how long a cluster may take to start, and a node to stop.
const patience = 3 * time.Minute

// nodesOf makes the data of one server, which has run with what is in first, and copies it: the
// nodes have a common history, and none needs a copy from another. settings are those of a node,
// with its ports, of which the clients use the first; again is its init file from now on.
func nodesOf(
	folder, kind string, ports int, first []string, again string, settings func(i int, ports [][]string) []string,
) (made []*mysqlNode, err error) {
	in, _, err := dbtest.Installed(kind)
	if err != nil {
		return nil, err
	}
	var all [][]string
	for range accounts {
		of, err := freePorts(ports)
		if err != nil {
			return nil, err
		}
		all = append(all, of)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, account := range accounts {
		n := &mysqlNode{address: "127.0.0.1:" + all[i][0], ports: all[i]}
		as, err := program.Unprivileged(account, "nobody")
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(folder, fmt.Sprintf("n%d", i+1))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		port, err := net.LookupPort("tcp", all[i][0])
		if err != nil {
			return nil, err
		}
		if n.pool, err = sql.Open("mysql", in.DSN(port)+"?timeout=2s"); err != nil {
			return nil, err
		}
		n.pool.SetMaxOpenConns(4)
		if i == 0 {
			if err := in.Make(ctx, as, dir); err != nil {
				return nil, err
			}
			n.Supervised = program.Supervise(in.Program(as, dir, port, first...), restartPause)
			if err := errors.Join(n.Start(), n.ready(ctx), n.Stop(patience)); err != nil {
				return nil, n.explain(err)
			}
		} else if err := os.CopyFS(dir, os.DirFS(made[0].Dir)); err != nil {
			return nil, err
		}
		n.Supervised = program.Supervise(in.Program(as, dir, port,
			append(settings(i, all), "--init-file="+filepath.Join(dir, "again.sql"))...), restartPause)
		made = append(made, n)
	}
	for _, n := range made {
		for _, own := range []string{"auto.cnf", "galera.cache"} {
			if err := os.RemoveAll(filepath.Join(n.Dir, "data", own)); err != nil {
				return nil, err
			}
		}
		if err := os.WriteFile(filepath.Join(n.Dir, "again.sql"), []byte(again), 0o644); err != nil {
			return nil, err
		}
		if err := n.As.Own(n.Dir); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// ready waits until the server answers.
func (n *mysqlNode) ready(ctx context.Context) error {
	return eventually(ctx, func(ctx context.Context) error {
		select {
		case <-n.Ended():
			return errors.Join(errEnded, context.Cause(ctx))
		default:
			return n.pool.PingContext(ctx)
		}
	})
}

var errEnded = errors.New("the server ended while it started")

// explain adds the end of the server's log.
func (n *mysqlNode) explain(err error) error {
	out, _ := os.ReadFile(n.Log())
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%s: %w\n%s", n.Dir, err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
}

// eventually tries until ctx ends.
func eventually(ctx context.Context, is func(ctx context.Context) error) error {
	for {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := is(within)
		cancel()
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// freePort is one that nobody listens on.
func freePort() (string, error) {
	ports, err := freePorts(1)
	if err != nil {
		return "", err
	}
	return ports[0], nil
}

// freePorts are some that nobody listens on.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
