//go:build linux

package clusters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
)

// mysqlNode is a server of a group, or of Galera.
type mysqlNode struct {
	dir     string
	address string
	program program
	pool    *sql.DB // to ask it what it is
}

func (n *mysqlNode) pid() (int, error) { return pidIn(filepath.Join(n.dir, "pid")) }

type mysqlCluster struct {
	nodes []*mysqlNode
	serve func(ctx context.Context, n *mysqlNode) bool // it accepts writes
	first []string                                     // what is of the first start of a node only
	doors []*door
}

// mysqlNodes are those in a folder.
func mysqlNodes(folder string) (*mysqlCluster, error) {
	c := &mysqlCluster{}
	for i := 1; ; i++ {
		dir := filepath.Join(folder, fmt.Sprintf("n%d", i))
		dsn, err := os.ReadFile(filepath.Join(dir, "dsn"))
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		config, err := mysql.ParseDSN(strings.TrimSpace(string(dsn)))
		if err != nil {
			return nil, err
		}
		n := &mysqlNode{dir: dir, address: config.Addr}
		pid, err := n.pid()
		if err != nil {
			return nil, err
		}
		if n.program, err = programOf(pid); err != nil {
			return nil, err
		}
		if n.pool, err = sql.Open("mysql", c.dsn(config.Addr)); err != nil {
			return nil, err
		}
		n.pool.SetMaxOpenConns(4)
		c.nodes = append(c.nodes, n)
	}
	if len(c.nodes) < 3 {
		return nil, fmt.Errorf("%d nodes in %s", len(c.nodes), folder)
	}
	return c, nil
}

func (c *mysqlCluster) dsn(address string) string {
	return "app:app@tcp(" + address + ")/app?parseTime=true&timeout=2s"
}

// door leads to the node with this number while that serves, and else to one that does.
func (c *mysqlCluster) door(home int) (address string, err error) {
	d, err := opened(200*time.Millisecond, func() string {
		for i := range c.nodes {
			n := c.nodes[(home+i)%len(c.nodes)]
			if c.serves(n) {
				return n.address
			}
		}
		return ""
	})
	if err != nil {
		return "", err
	}
	c.doors = append(c.doors, d)
	return d.address(), nil
}

func (c *mysqlCluster) serves(n *mysqlNode) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	return c.serve(ctx, n)
}

// writer is the first node that serves.
func (c *mysqlCluster) writer() (*mysqlNode, error) {
	for _, n := range c.nodes {
		if c.serves(n) {
			return n, nil
		}
	}
	return nil, errors.New("no node serves")
}

func (c *mysqlCluster) close() {
	for _, d := range c.doors {
		d.close()
	}
	for _, n := range c.nodes {
		_ = n.pool.Close()
	}
}

// victim is a node that serves, and its process.
func (c *mysqlCluster) victim() (n *mysqlNode, pid int, err error) {
	if n, err = c.writer(); err == nil {
		pid, err = n.pid()
	}
	return n, pid, err
}

// kill ends a node that serves, and starts it anew.
func (c *mysqlCluster) kill(context.Context) error {
	n, pid, err := c.victim()
	if err != nil {
		return err
	}
	if err := signal(syscall.SIGKILL, pid); err != nil {
		return err
	}
	time.Sleep(away)
	_, err = n.program.start(filepath.Join(n.dir, "out"), c.first...)
	return err
}

// stop has a node that serves sleep beyond the patience of the others. It wakes up as a node that
// knows nothing.
func (c *mysqlCluster) stop(context.Context) error {
	_, pid, err := c.victim()
	if err != nil {
		return err
	}
	if err := signal(syscall.SIGSTOP, pid); err != nil {
		return err
	}
	time.Sleep(2 * away)
	return signal(syscall.SIGCONT, pid)
}

// apps are clients, each with a door of its own: to a node each, or all to one.
func (c *mysqlCluster) apps(several, single bool) (apps []func(...dblock.Option) (*app, error), err error) {
	for i := range len(c.nodes) + 1 {
		home := 0
		if several {
			home = i % len(c.nodes)
		}
		address, err := c.door(home)
		if err != nil {
			return nil, err
		}
		dsn := c.dsn(address)
		if i%2 == 1 {
			dsn += "&rejectReadOnly=true"
		}
		apps = append(apps, func(options ...dblock.Option) (*app, error) {
			return onMySQL(fmt.Sprintf("node %d", home+1), dsn, single, options...)
		})
	}
	return apps, nil
}

const onlineMembers = "SELECT COUNT(*), COALESCE(SUM(MEMBER_ID = @@server_uuid AND MEMBER_ROLE = 'PRIMARY'), 0) FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'"

// group is one of Group Replication, with one primary or with several.
func group(folder string, single bool) (*cluster, error) {
	c, err := mysqlNodes(folder)
	if err != nil {
		return nil, err
	}
	c.first = []string{"--group-replication-bootstrap-group=ON"}
	online := func(ctx context.Context, n *mysqlNode) (members, primary int, err error) {
		err = n.pool.QueryRowContext(ctx, onlineMembers).Scan(&members, &primary)
		return members, primary, err
	}
	c.serve = func(ctx context.Context, n *mysqlNode) bool {
		members, primary, err := online(ctx, n)
		return err == nil && primary == 1 && members > len(c.nodes)/2
	}
	apps, err := c.apps(!single, single)
	if err != nil {
		return nil, err
	}
	healthy := func(ctx context.Context) error {
		for _, n := range c.nodes {
			members, _, err := online(ctx, n)
			if err == nil && members == 0 { // it was expelled
				_, err = n.pool.ExecContext(ctx, "STOP GROUP_REPLICATION")
				_, again := n.pool.ExecContext(ctx, "START GROUP_REPLICATION")
				err = errors.Join(err, again)
			}
			if err != nil || members != len(c.nodes) {
				return fmt.Errorf("%s knows %d members, %w", n.dir, members, err)
			}
		}
		return nil
	}
	faults := []fault{{"kill a primary", c.kill}, {"stop a primary", c.stop}}
	if single {
		faults = append(faults, fault{"switchover", func(ctx context.Context) error {
			var next string
			n, err := c.writer()
			if err == nil {
				err = n.pool.QueryRowContext(ctx, "SELECT MEMBER_ID FROM performance_schema.replication_group_members WHERE MEMBER_ROLE = 'SECONDARY' LIMIT 1").Scan(&next)
			}
			if err == nil {
				_, err = n.pool.ExecContext(ctx, "SELECT group_replication_set_as_primary('"+next+"')")
			}
			return err
		}})
	}
	return c.cluster(apps, faults, healthy, !single)
}

func (c *mysqlCluster) cluster(apps []func(...dblock.Option) (*app, error), faults []fault, healthy func(context.Context) error, several bool) (*cluster, error) {
	if err := canCut(); err != nil {
		fmt.Printf("no node is cut off from the others: %v\n", err)
	} else {
		if err := c.separate(healthy); err != nil {
			return nil, err
		}
		faults = append(faults, fault{"cut a node off", c.cut})
	}
	address, err := c.door(0)
	if err != nil {
		return nil, err
	}
	return &cluster{
		engine: migrate.MySQL, driver: "mysql", door: c.dsn(address), ttl: 20 * time.Second, durable: true, lagging: several,
		apps: apps, faults: faults, healthy: healthy, close: c.close,
	}, nil
}

const galeraState = "SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME SEPARATOR ' ') FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ('wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_local_state_comment')"

// galera is a cluster of MariaDB. one: all clients write on one node.
func galera(folder string, one bool) (*cluster, error) {
	c, err := mysqlNodes(folder)
	if err != nil {
		return nil, err
	}
	c.first = []string{"--wsrep-new-cluster"}
	state := func(ctx context.Context, n *mysqlNode) (text string, err error) {
		err = n.pool.QueryRowContext(ctx, galeraState).Scan(&text)
		return text, err
	}
	c.serve = func(ctx context.Context, n *mysqlNode) bool {
		text, err := state(ctx, n)
		return err == nil && strings.HasSuffix(text, " Primary Synced")
	}
	apps, err := c.apps(!one, one)
	if err != nil {
		return nil, err
	}
	healthy := func(ctx context.Context) error {
		for _, n := range c.nodes {
			if text, err := state(ctx, n); err != nil || text != fmt.Sprintf("%d Primary Synced", len(c.nodes)) {
				return fmt.Errorf("%s: %q, %w", n.dir, text, err)
			}
		}
		return nil
	}
	return c.cluster(apps, []fault{{"kill a node", c.kill}, {"stop a node", c.stop}}, healthy, !one)
}
