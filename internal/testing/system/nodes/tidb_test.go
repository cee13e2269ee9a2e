package nodes

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
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

// tidb is two SQL nodes of TiDB over one store, in a process of internal/testing/tidb.
type tidb struct {
	addrs []string
	in    io.Writer
	out   *bufio.Reader
}

// startTiDB starts the program in DBLOCK_TEST_TIDB_NODES, with dblock's tables in database app.
func startTiDB(t *testing.T) cluster {
	program := os.Getenv("DBLOCK_TEST_TIDB_NODES")
	if program == "" {
		t.Skip("DBLOCK_TEST_TIDB_NODES does not name the program of internal/testing/tidb")
	}
	c := &tidb{}
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
	db := c.connect(t, 0, "")
	require.NoError(t, require.ErrOf(db.Exec("CREATE DATABASE app")))
	require.NoError(t, migrate.Up(t.Context(), c.open(t, 0), migrate.MySQL))
	return c
}

// answered waits until the program has done what it was told.
func (c *tidb) answered(t *testing.T) {
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
func (c *tidb) tell(t *testing.T, what string, node int) {
	t.Helper()
	_, err := fmt.Fprintln(c.in, what, node)
	require.NoError(t, err)
	c.answered(t)
}

// open opens a pool of a client on each second node.
func (c *tidb) open(t *testing.T, client int) *sql.DB {
	return c.connect(t, client%len(c.addrs), "app")
}

// faults stop a node for a while, and kill the connections of one.
func (c *tidb) faults() map[string]func(t *testing.T, random *rand.Rand) {
	return map[string]func(t *testing.T, random *rand.Rand){
		"connections of a node killed": func(t *testing.T, random *rand.Rand) {
			c.killConnections(t, random.IntN(len(c.addrs)))
		},
		"node stopped": func(t *testing.T, random *rand.Rand) {
			node := random.IntN(len(c.addrs))
			c.tell(t, "stop", node)
			<-time.After(time.Duration(random.Int64N(int64(time.Second))))
			c.tell(t, "start", node)
		},
	}
}

// connect opens a pool whose connections go to a node, and to the other one while that one is down.
func (c *tidb) connect(t *testing.T, node int, database string) *sql.DB {
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

// killConnections kills all connections to a node, except its own.
func (c *tidb) killConnections(t *testing.T, node int) {
	db := c.connect(t, node, "app")
	defer db.Close()
	db.SetMaxOpenConns(1)
	rows, err := db.Query("SELECT id FROM information_schema.processlist WHERE db = 'app' AND id <> CONNECTION_ID()")
	if err != nil {
		return
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if rows.Scan(&id) == nil {
			ids = append(ids, id)
		}
	}
	_ = rows.Close()
	for _, id := range ids {
		_, _ = db.Exec(fmt.Sprintf("KILL TIDB CONNECTION %d", id))
	}
}
