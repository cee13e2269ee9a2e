//go:build linux

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/migrate"
)

type mysqlCluster struct {
	nodes []*mysqlNode
	// view is what a node says: the addresses of those that accept writes.
	view  func(ctx context.Context, n *mysqlNode) (serving []string, err error)
	doors []*door
}

// start starts the nodes, the first of which makes the cluster with the settings in first. The
// others follow when it serves.
func (c *mysqlCluster) start(first ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, n := range c.nodes {
		if err := n.Start(first...); err != nil {
			return err
		}
		first = nil
		if err := n.ready(ctx); err != nil {
			return n.explain(err)
		}
		if n == c.nodes[0] {
			if err := eventually(ctx, func(ctx context.Context) error {
				if serving, err := c.view(ctx, n); err != nil || len(serving) == 0 {
					return fmt.Errorf("the first node does not serve: %w", err)
				}
				return nil
			}); err != nil {
				return n.explain(err)
			}
		}
	}
	return nil
}

func dsn(address string) string {
	return "root@tcp(" + address + ")/test?parseTime=true&timeout=2s"
}

// serving are the nodes that accept writes, by their own word and that of most. A node that comes
// back from the other side of a partition takes itself for what it was.
func (c *mysqlCluster) serving() []*mysqlNode {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var views [nodes][]string
	var asked sync.WaitGroup
	for i, n := range c.nodes {
		asked.Go(func() { views[i], _ = c.view(ctx, n) })
	}
	asked.Wait()
	var serving []*mysqlNode
	for i, n := range c.nodes {
		votes := 0
		for _, view := range views {
			if slices.Contains(view, n.address) {
				votes++
			}
		}
		if votes > nodes/2 && slices.Contains(views[i], n.address) {
			serving = append(serving, n)
		}
	}
	return serving
}

// door leads to the node with this number while that serves, and else to one that does.
func (c *mysqlCluster) door(home int) (address string, err error) {
	d, err := opened(200*time.Millisecond, func() string {
		serving := c.serving()
		for i := range c.nodes {
			if n := c.nodes[(home+i)%nodes]; slices.Contains(serving, n) {
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

// writer is the first node that serves.
func (c *mysqlCluster) writer() (*mysqlNode, error) {
	if serving := c.serving(); len(serving) > 0 {
		return serving[0], nil
	}
	return nil, errors.New("no node serves")
}

func (c *mysqlCluster) close() {
	for _, d := range c.doors {
		d.close()
	}
	for _, n := range c.nodes {
		_, _ = n.pool.Close(), n.Kill()
	}
}

// away is how long a node stays away: longer than the others wait for it.
const away = 15 * time.Second

// kill ends a node that serves, and starts it anew.
func (c *mysqlCluster) kill(context.Context) error {
	n, err := c.writer()
	if err == nil {
		err = n.Kill()
	}
	if err != nil {
		return err
	}
	time.Sleep(away)
	return n.Start()
}

// stop has a node that serves sleep beyond the patience of the others. It wakes up as a node that
// knows nothing.
func (c *mysqlCluster) stop(context.Context) error {
	n, err := c.writer()
	if err == nil {
		err = n.Pause()
	}
	if err != nil {
		return err
	}
	time.Sleep(2 * away)
	return n.Resume()
}

// apps are clients, each with a door of its own: to a node each, or all to one.
func (c *mysqlCluster) apps(several, single bool) (apps []func(...dblock.Option) (*app, error), err error) {
	for i := range nodes + 1 {
		home := 0
		if several {
			home = i % nodes
		}
		address, err := c.door(home)
		if err != nil {
			return nil, err
		}
		dsn := dsn(address)
		if i%2 == 1 {
			dsn += "&rejectReadOnly=true"
		}
		apps = append(apps, func(options ...dblock.Option) (*app, error) {
			return onMySQL(fmt.Sprintf("node %d", home+1), dsn, single, options...)
		})
	}
	return apps, nil
}

const onlineMembers = "SELECT CONCAT(MEMBER_HOST, ':', MEMBER_PORT), MEMBER_ROLE = 'PRIMARY' FROM " +
	"performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'"

// membersOf is a node's view of its group: the number of members, and the addresses of the
// primaries.
func membersOf(ctx context.Context, n *mysqlNode) (online int, primaries []string, err error) {
	rows, err := n.pool.QueryContext(ctx, onlineMembers)
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	for ; rows.Next(); online++ {
		var address string
		var primary bool
		if err := rows.Scan(&address, &primary); err != nil {
			return 0, nil, err
		}
		if primary {
			primaries = append(primaries, address)
		}
	}
	return online, primaries, rows.Err()
}

// group is one of Group Replication, with one primary or with several.
func group(folder string, single bool) (*cluster, error) {
	mode := []string{"--group-replication-single-primary-mode=ON"}
	if !single {
		mode = []string{"--group-replication-single-primary-mode=OFF",
			"--group-replication-enforce-update-everywhere-checks=ON"}
	}
	all, err := nodesOf(folder, dbtest.KindMySQL, 1, []string{"--skip-log-bin", "--innodb-redo-log-capacity=64M"},
		"SET SESSION sql_log_bin = 0;\nCHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL "+
			"'group_replication_recovery';\n",
		func(i int, ports [][]string) []string {
			var seeds []string
			for _, of := range ports {
				seeds = append(seeds, "127.0.0.1:"+of[0])
			}
			return append(mode, "--innodb-redo-log-capacity=64M", fmt.Sprintf("--server-id=%d", i+1), "--gtid-mode=ON",
				"--enforce-gtid-consistency=ON", "--log-bin=binlog",
				"--report-host=127.0.0.1", "--report-port="+ports[i][0], "--replica-parallel-workers=2",
				"--plugin-load-add=group_replication.so",
				"--group-replication-group-name=aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
				"--group-replication-start-on-boot=ON",
				"--group-replication-communication-stack=MYSQL", "--group-replication-ssl-mode=DISABLED",
				"--group-replication-recovery-get-public-key=ON",
				"--group-replication-local-address="+seeds[i], "--group-replication-group-seeds="+strings.Join(seeds,
					","),
				"--group-replication-message-cache-size=134217728", "--group-replication-member-expel-timeout=0",
				"--group-replication-consistency=BEFORE_ON_PRIMARY_FAILOVER")
		})
	if err != nil {
		return nil, err
	}
	c := &mysqlCluster{nodes: all}
	c.view = func(ctx context.Context, n *mysqlNode) ([]string, error) {
		_, primaries, err := membersOf(ctx, n)
		return primaries, err
	}
	err = c.start("--group-replication-bootstrap-group=ON")
	if err == nil {
		_, err = all[0].pool.ExecContext(context.Background(), "SET GLOBAL group_replication_bootstrap_group = OFF")
	}
	if err != nil {
		c.close()
		return nil, err
	}
	apps, err := c.apps(!single, single)
	if err != nil {
		return nil, err
	}
	healthy := func(ctx context.Context) error {
		for _, n := range c.nodes {
			members, _, err := membersOf(ctx, n)
			if err == nil && members == 0 { // it was expelled
				_, err = n.pool.ExecContext(ctx, "STOP GROUP_REPLICATION")
				_, again := n.pool.ExecContext(ctx, "START GROUP_REPLICATION")
				err = errors.Join(err, again)
			}
			if err != nil || members != nodes {
				return fmt.Errorf("%s knows %d members, %w", n.Dir, members, err)
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
				err = n.pool.QueryRowContext(ctx,
					"SELECT MEMBER_ID FROM performance_schema.replication_group_members WHERE MEMBER_ROLE = "+
						"'SECONDARY' LIMIT 1").Scan(&next)
			}
			if err == nil {
				_, err = n.pool.ExecContext(ctx, "SELECT group_replication_set_as_primary('"+next+"')")
			}
			return err
		}})
	}
	return c.cluster(apps, faults, healthy, !single)
}

func (c *mysqlCluster) cluster(
	apps []func(...dblock.Option) (*app, error), faults []fault, healthy func(context.Context) error, several bool,
) (*cluster, error) {
	if err := canCut(); err != nil {
		fmt.Printf("no node is cut off from the others: %v\n", err)
	} else {
		faults = append(faults, fault{"cut a node off", c.cut})
	}
	address, err := c.door(0)
	if err != nil {
		return nil, err
	}
	return &cluster{
		engine: migrate.MySQL, driver: "mysql", door: dsn(address), node: dsn(c.nodes[0].address),
		ttl: 20 * time.Second, durable: true, lagging: several,
		apps: apps, faults: faults, healthy: healthy, close: c.close,
	}, nil
}

const galeraState = "SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME SEPARATOR ' ') FROM " +
	"information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ('wsrep_cluster_status', 'wsrep_incoming_addresses', " +
	"'wsrep_local_state_comment')"

// galera is a cluster of MariaDB. one: all clients write on one node.
func galera(folder string, one bool) (*cluster, error) {
	provider, err := provider()
	if err != nil {
		return nil, err
	}
	common := []string{
		"--innodb-log-file-size=16M", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON",
		"--wsrep-provider=" + provider,
		"--wsrep-cluster-name=t", "--wsrep-node-address=127.0.0.1", "--wsrep-sst-method=rsync",
	}
	listens := func(ports []string) string {
		return "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:" + ports[1] + ";ist.recv_addr=127.0.0.1:" +
			ports[2] + ";gcache.size=256M;" +
			"evs.keepalive_period=PT0.2S;evs.inactive_check_period=PT0.2S;" +
			"evs.suspect_timeout=PT1S;evs.inactive_timeout=PT3S;evs.install_timeout=PT3S"
	}
	alone, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	all, err := nodesOf(folder, dbtest.KindMariaDB, 4, append(slices.Clip(common), listens(alone),
		"--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster"), "",
		func(i int, ports [][]string) []string {
			var peers []string
			for _, of := range ports {
				peers = append(peers, "127.0.0.1:"+of[1])
			}
			return append(slices.Clip(common), listens(ports[i]), "--wsrep-cluster-address=gcomm://"+strings.Join(peers,
				","), fmt.Sprintf("--wsrep-node-name=n%d", i+1),
				"--wsrep-node-incoming-address=127.0.0.1:"+ports[i][0], "--wsrep-sst-receive-address=127.0.0.1:"+
					ports[i][3])
		})
	if err != nil {
		return nil, err
	}
	c := &mysqlCluster{nodes: all}
	c.view = func(ctx context.Context, n *mysqlNode) (members []string, err error) {
		var text string
		if err := n.pool.QueryRowContext(ctx, galeraState).Scan(&text); err != nil {
			return nil, err
		}
		if is := strings.Fields(text); len(is) == 3 && is[0] == "Primary" {
			members = strings.Split(is[1], ",")
			if is[2] != "Synced" {
				members = slices.DeleteFunc(members, func(address string) bool { return address == n.address })
			}
		}
		return members, nil
	}
	if err := c.start("--wsrep-new-cluster"); err != nil {
		c.close()
		return nil, err
	}
	apps, err := c.apps(!one, one)
	if err != nil {
		return nil, err
	}
	healthy := func(ctx context.Context) error {
		for _, n := range c.nodes {
			if members, err := c.view(ctx, n); err != nil || len(members) != nodes {
				return fmt.Errorf("%s knows %v, %w", n.Dir, members, err)
			}
		}
		return nil
	}
	return c.cluster(apps, []fault{{"kill a node", c.kill}, {"stop a node", c.stop}}, healthy, !one)
}

// provider is the library of Galera: Debian's, or beside the server.
func provider() (string, error) {
	_, daemon, err := dbtest.Installed(dbtest.KindMariaDB)
	if err != nil {
		return "", err
	}
	base := filepath.Dir(filepath.Dir(daemon))
	for _, folder := range []string{"lib/galera", "lib64/galera-4", "lib"} {
		if path := filepath.Join(base, folder, "libgalera_smm.so"); exists(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("no libgalera_smm.so beside %s: install galera-4", daemon)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
