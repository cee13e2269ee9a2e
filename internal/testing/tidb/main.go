// Command tidb runs two SQL nodes of TiDB over one store, in one process: tidb PORT PORT. It reads
// commands from standard input, "stop N" and "start N" with N = 0 or 1, and answers each by "ok".
// It ends with its input.
//
// The command is a module of its own, outside of go.work. TiDB runs only with the toolchain of its
// release, and dblock with another. Build it by
//
//	GOTOOLCHAIN=go1.25.8 GOWORK=off go build -C internal/testing/tidb -o FILE .
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/pingcap/log"
	"github.com/pingcap/tidb/pkg/config"
	"github.com/pingcap/tidb/pkg/domain"
	"github.com/pingcap/tidb/pkg/kv"
	"github.com/pingcap/tidb/pkg/server"
	"github.com/pingcap/tidb/pkg/session"
	"github.com/pingcap/tidb/pkg/store/mockstore"
)

// node is a SQL node.
type node struct {
	port   uint
	server *server.Server // nil: it is stopped
}

func main() {
	quiet, properties, err := log.InitLogger(&log.Config{Level: "fatal"})
	check(err)
	log.ReplaceGlobals(quiet, properties)
	store, err := mockstore.NewMockStore()
	check(err)
	session.DisableStats4Test()
	dom, err := session.BootstrapSession(store)
	check(err)
	var nodes []*node
	for _, arg := range os.Args[1:] {
		port, err := strconv.ParseUint(arg, 10, 16)
		check(err)
		n := &node{port: uint(port)}
		check(n.start(store, dom))
		nodes = append(nodes, n)
	}
	fmt.Println("ok")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var command string
		var which int
		_, err := fmt.Sscan(lines.Text(), &command, &which)
		check(err)
		switch n := nodes[which]; command {
		case "stop":
			n.stop()
		case "start":
			check(n.start(store, dom))
		}
		fmt.Println("ok")
	}
}

// start starts the node, and returns when it accepts connections.
func (n *node) start(store kv.Storage, dom *domain.Domain) error {
	c := config.NewConfig()
	c.Host, c.Port, c.Status.ReportStatus, c.Socket = "127.0.0.1", n.port, false, ""
	s, err := server.NewServer(c, server.NewTiDBDriver(store))
	if err != nil {
		return err
	}
	s.SetDomain(dom)
	n.server = s
	go func() { check(s.Run(nil)) }()
	for {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", n.port))
		if err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stop ends the node with all its connections, and what their transactions have locked.
func (n *node) stop() {
	n.server.Close()
	n.server.KillAllConnections()
	n.server = nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
