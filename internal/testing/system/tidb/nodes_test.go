package tidb

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// cluster is two SQL nodes of TiDB over one store, in a process of internal/testing/tidb.
type cluster struct {
	addrs []string
	in    io.Writer
	out   *bufio.Reader
}

// startCluster starts the program in DBLOCK_TEST_TIDB_NODES, with dblock's tables in database app.
func startCluster(t *testing.T) *cluster {
	program := os.Getenv("DBLOCK_TEST_TIDB_NODES")
	if program == "" {
		t.Skip("DBLOCK_TEST_TIDB_NODES does not name the program of internal/testing/tidb")
	}
	c := &cluster{}
	var ports []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		c.addrs = append(c.addrs, l.Addr().String())
		ports = append(ports, fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
		require.NoError(t, l.Close())
	}
	cmd := exec.Command(program, ports...)
	cmd.Dir, cmd.Stderr = t.TempDir(), os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c.in, c.out = in, bufio.NewReader(out)
	c.answered(t)
	db := c.open(t, 0, "")
	require.NoError(t, require.ErrOf(db.Exec("CREATE DATABASE app")))
	require.NoError(t, migrate.Up(t.Context(), c.open(t, 0, "app"), migrate.MySQL))
	return c
}

// answered waits until the program has done what it was told.
func (c *cluster) answered(t *testing.T) {
	t.Helper()
	for {
		line, err := c.out.ReadString('\n')
		require.NoError(t, err, "the nodes have ended")
		if strings.TrimSpace(line) == "ok" {
			return
		}
	}
}

// tell stops or starts a node.
func (c *cluster) tell(t *testing.T, what string, node int) {
	t.Helper()
	_, err := fmt.Fprintln(c.in, what, node)
	require.NoError(t, err)
	c.answered(t)
}

// open opens a pool whose connections go to a node, and to the other one while that one is down.
func (c *cluster) open(t *testing.T, node int, database string) *sql.DB {
	t.Helper()
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = "root", "tcp", c.addrs[node], database
	config.Logger = &mysql.NopLogger{}
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: time.Second}
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			conn, err = dialer.DialContext(ctx, network, c.addrs[1-node])
		}
		return conn, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
