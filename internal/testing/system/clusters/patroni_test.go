//go:build linux

package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/program"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// postgresNode is a server under Patroni.
type postgresNode struct {
	*program.Supervised        // Patroni
	name, port, rest    string // rest: the port of Patroni's interface
}

func (n postgresNode) config() string { return filepath.Join(n.Dir, "patroni.yml") }

// postmaster is the id of the server's process, which Patroni does not take for its own.
func (n postgresNode) postmaster() (int, error) {
	text, err := os.ReadFile(filepath.Join(n.Dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

type patroniCluster struct {
	folder  string
	account *program.Account // no server runs as root
	nodes   []postgresNode
	beside  []*program.Supervised // etcd, HAProxy and PgBouncer
}

// run runs a program beside the cluster.
func (p *patroniCluster) run(name, config, text string, argv ...string) error {
	dir := filepath.Join(p.folder, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if config != "" {
		config = filepath.Join(dir, config)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			return err
		}
		argv = append(argv, config)
	}
	if err := p.account.Own(dir); err != nil {
		return err
	}
	helper := program.Supervise(&program.Program{As: p.account, Dir: dir, Args: argv}, restartPause)
	p.beside = append(p.beside, helper)
	return helper.Start()
}

// The settings of Patroni for synchronous replication.
const (
	asynchronous = "synchronous_mode: false"
	synchronous  = "synchronous_mode: true"
	strict       = "synchronous_mode: true, synchronous_mode_strict: true"
)

// patroni is a cluster of three nodes.
func patroni(folder, mode string) (_ *cluster, err error) {
	p := &patroniCluster{folder: folder}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.account, err = program.Unprivileged("postgres", "nobody"); err != nil {
		return nil, err
	}
	if err := p.start(mode); err != nil {
		return nil, err
	}
	haproxy, err := p.haproxy()
	if err != nil {
		return nil, err
	}
	pooler, err := p.pgbouncer(haproxy)
	if err != nil {
		return nil, err
	}
	dsn := func(hosts, more string) string {
		return "postgres://postgres:postgres@" + hosts + "/postgres?sslmode=disable&connect_timeout=2" + more
	}
	var all []string
	for _, n := range p.nodes {
		all = append(all, "127.0.0.1:"+n.port)
	}
	through := func(way, dsn, direct string) func(...dblock.Option) (*app, error) {
		return func(options ...dblock.Option) (*app, error) { return onPostgres(way, dsn, direct, options...) }
	}
	c := &cluster{
		engine: migrate.Postgres, driver: "pgx", door: dsn("127.0.0.1:"+haproxy, ""), ttl: 2 * leaderTTL,
		durable: mode != asynchronous,
		apps: []func(...dblock.Option) (*app, error){
			through("HAProxy", dsn("127.0.0.1:"+haproxy, ""), ""),
			through("HAProxy", dsn("127.0.0.1:"+haproxy, ""), ""),
			through("PgBouncer", dsn("127.0.0.1:"+pooler, "&default_query_exec_mode=exec"), dsn("127.0.0.1:"+haproxy,
				"")),
			func(options ...dblock.Option) (*app, error) {
				a, err := onPostgres("all hosts", dsn(strings.Join(all, ","), "&target_session_attrs=read-write"), "",
					options...)
				if err == nil {
					a.direct = true
				}
				return a, err
			},
		},
		faults: []fault{
			{"switchover", p.switchover},
			{"kill postgres", p.killPostgres},
			{"kill the machine", p.killMachine},
			{"kill patroni", p.killPatroni},
			{stopMachine, p.stopMachine},
			{"kill a lagging primary", p.killLagging},
		},
		healthy: p.healthy, close: p.close,
	}
	if mode != asynchronous && stealsTheLead() {
		fmt.Println("no machine is stopped: this Patroni, when it wakes up, takes the lead back from the next " +
			"primary, and what that has confirmed is lost")
		c.faults = slices.DeleteFunc(c.faults, func(f fault) bool { return f.name == stopMachine })
	}
	return c, nil
}

const stopMachine = "stop the machine"

// stealsTheLead reports whether Patroni overwrites the leader key in etcd without a comparison, as
// 3.0 does. 4.0 compares the owner first.
func stealsTheLead() bool {
	out, err := exec.Command("patroni", "--version").Output()
	return err == nil && strings.HasPrefix(strings.TrimPrefix(string(out), "patroni "), "3.")
}

// leaderTTL is how long Patroni waits for a primary: 4.0 takes no less.
const leaderTTL = 20 * time.Second

// gone is how long a node stays away: longer than that.
const gone = leaderTTL + 5*time.Second

const patroniConfig = `scope: t
name: %[1]s
restapi: {listen: "127.0.0.1:%[2]s", connect_address: "127.0.0.1:%[2]s"}
etcd3: {host: "127.0.0.1:%[3]s"}
bootstrap:
  dcs:
    {ttl: %[8]d, loop_wait: 1, retry_timeout: 3, maximum_lag_on_failover: 1048576, %[4]s,
     postgresql: {use_pg_rewind: true, parameters: {fsync: "off", max_connections: 200, wal_keep_size: 256MB}}}
  initdb: [{encoding: UTF8}, {locale: C.UTF-8}, data-checksums, no-sync]
  pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust", "local all all trust"]
postgresql:
  listen: 127.0.0.1:%[5]s
  connect_address: 127.0.0.1:%[5]s
  data_dir: %[6]s/data
  bin_dir: %[7]s
  pgpass: %[6]s/pgpass
  parameters: {unix_socket_directories: "%[6]s"}
  authentication:
    superuser: {username: postgres, password: postgres}
    replication: {username: repl, password: repl}
    rewind: {username: rewind, password: rewind}
`

// start starts etcd, and the nodes.
func (p *patroniCluster) start(mode string) error {
	_, bin, err := dbtest.Installed(dbtest.KindPostgres)
	if err != nil {
		return err
	}
	ports, err := freePorts(2 + 2*nodes)
	if err != nil {
		return err
	}
	clients, peers := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	if err := p.run("etcd", "", "", "etcd", "--name", "one", "--data-dir", filepath.Join(p.folder, "etcd", "data"),
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster",
		"one="+peers); err != nil {
		return err
	}
	for i := range nodes {
		n := postgresNode{name: fmt.Sprintf("n%d", i+1), port: ports[2+2*i], rest: ports[3+2*i]}
		dir := filepath.Join(p.folder, n.name)
		n.Supervised = program.Supervise(&program.Program{As: p.account, Dir: dir, Args: []string{"patroni",
			filepath.Join(dir, "patroni.yml")}}, restartPause)
		text := fmt.Sprintf(patroniConfig, n.name, n.rest, ports[0], mode, n.port, dir, bin, leaderTTL/time.Second)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(n.config(), []byte(text), 0o644),
			p.account.Own(dir), n.Start()); err != nil {
			return err
		}
		p.nodes = append(p.nodes, n)
	}
	return nil
}

// haproxy leads to the primary. The configuration is that of docs/clusters.md.
func (p *patroniCluster) haproxy() (port string, err error) {
	if port, err = freePort(); err != nil {
		return "", err
	}
	text := haproxyConfig("127.0.0.1:" + port)
	for _, n := range p.nodes {
		text += fmt.Sprintf("    server %s 127.0.0.1:%s check port %s\n", n.name, n.port, n.rest)
	}
	err = p.run("haproxy", "haproxy.cfg", text, "haproxy", "-db", "-f")
	time.Sleep(4 * time.Second) // it takes every server for a primary until two checks have failed
	return port, err
}

func haproxyConfig(address string) string {
	return `defaults
    mode tcp
    timeout connect 2s
    timeout client 60m
    timeout server 60m
    timeout check 2s
listen primary
    bind ` + address + `
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
`
}

// pgbouncer pools transactions in front of HAProxy.
func (p *patroniCluster) pgbouncer(haproxy string) (port string, err error) {
	if port, err = freePort(); err != nil {
		return "", err
	}
	return port, p.run("pgbouncer", "pgbouncer.ini", `[databases]
postgres = host=127.0.0.1 port=`+haproxy+` user=postgres password=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = `+port+`
unix_socket_dir =
auth_type = any
`+pgbouncerConfig, "pgbouncer", "-q")
}

const pgbouncerConfig = `pool_mode = transaction
default_pool_size = 20
server_login_retry = 1
server_connect_timeout = 2
`

func TestTheDocumentHasWhatWasRun(t *testing.T) {
	document, err := os.ReadFile("../../../../docs/clusters.md")
	require.NoError(t, err)
	for _, text := range []string{haproxyConfig("127.0.0.1:5000"), pgbouncerConfig} {
		if !strings.Contains(string(document), text) {
			t.Errorf("docs/clusters.md does not have\n%s", text)
		}
	}
}

func (p *patroniCluster) close() {
	for _, n := range p.nodes { // a server would go on without its Patroni
		_ = n.Kill()
		if pid, err := n.postmaster(); err == nil {
			_ = program.Kill(pid)
		}
	}
	for _, helper := range p.beside {
		_ = helper.Kill()
	}
}

// members is what Patroni says of the cluster.
func (p *patroniCluster) members(ctx context.Context) (roles map[string]string, err error) {
	for _, n := range p.nodes {
		var all struct {
			Members []struct{ Name, Role, State string }
		}
		within, cancel := context.WithTimeout(ctx, time.Second)
		request, failed := http.NewRequestWithContext(within, http.MethodGet, "http://127.0.0.1:"+n.rest+"/cluster",
			nil)
		if failed != nil {
			cancel()
			return nil, failed
		}
		request.Close = true
		answer, failed := http.DefaultClient.Do(request)
		if failed == nil {
			failed = json.NewDecoder(answer.Body).Decode(&all)
			_ = answer.Body.Close()
		}
		cancel()
		if err = failed; err != nil {
			continue
		}
		roles = map[string]string{}
		for _, m := range all.Members {
			roles[m.Name] = m.Role + " " + m.State
		}
		return roles, nil
	}
	return nil, err
}

func (p *patroniCluster) healthy(ctx context.Context) error {
	roles, err := p.members(ctx)
	if err != nil {
		return err
	}
	leaders, following := 0, 0
	for name, role := range roles {
		switch role {
		case "replica start failed", "sync_standby start failed":
			return errors.Join(fmt.Errorf("%v", roles), p.reinitialize(ctx, name))
		case "leader running":
			leaders++
		case "replica streaming", "sync_standby streaming", "replica running", "sync_standby running":
			following++
		}
	}
	if leaders != 1 || following != nodes-1 {
		return fmt.Errorf("%v", roles)
	}
	return nil
}

// reinitialize has a node that cannot start copy the primary, as an operator would: pg_rewind may
// leave it with empty files.
func (p *patroniCluster) reinitialize(ctx context.Context, name string) error {
	for _, n := range p.nodes {
		if n.name != name {
			continue
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:"+n.rest+"/reinitialize",
			strings.NewReader(`{"force": true}`))
		if err != nil {
			return err
		}
		request.Close = true
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	return fmt.Errorf("no node %s", name)
}

// primary is the node that leads.
func (p *patroniCluster) primary(ctx context.Context) (postgresNode, error) {
	roles, err := p.members(ctx)
	for _, n := range p.nodes {
		if strings.HasPrefix(roles[n.name], "leader ") {
			return n, nil
		}
	}
	return postgresNode{}, fmt.Errorf("nobody leads: %v, %w", roles, err)
}

func (p *patroniCluster) switchover(ctx context.Context) error {
	n, err := p.primary(ctx)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "patronictl", "-c", n.config(), "switchover", "--leader", n.name,
		"--force").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (p *patroniCluster) killPostgres(ctx context.Context) error {
	_, pid, err := p.victim(ctx)
	if err != nil {
		return err
	}
	return program.Kill(pid)
}

// victim is the primary, and its server.
func (p *patroniCluster) victim(ctx context.Context) (n postgresNode, server int, err error) {
	if n, err = p.primary(ctx); err == nil {
		server, err = n.postmaster()
	}
	return n, server, err
}

func (p *patroniCluster) killMachine(ctx context.Context) error {
	n, server, err := p.victim(ctx)
	if err == nil {
		err = errors.Join(n.Kill(), program.Kill(server))
	}
	if err != nil {
		return err
	}
	time.Sleep(gone)
	return n.Start()
}

// killPatroni leaves an orphan: the primary goes on without what could demote it, and longer than
// the sessions that beat on the one live on the other.
func (p *patroniCluster) killPatroni(ctx context.Context) error {
	n, err := p.primary(ctx)
	if err == nil {
		err = n.KillAlone()
	}
	if err != nil {
		return err
	}
	time.Sleep(4 * leaderTTL)
	return n.Start()
}

// stopMachine has a node sleep beyond the TTL of Patroni and that of the clients. It wakes up as a
// primary that knows nothing.
func (p *patroniCluster) stopMachine(ctx context.Context) error {
	n, server, err := p.victim(ctx)
	if err == nil {
		err = errors.Join(n.Pause(), program.Pause(server))
	}
	if err != nil {
		return err
	}
	time.Sleep(2 * gone)
	return errors.Join(program.Resume(server), n.Resume())
}

// killLagging kills a primary whose standbys have not heard of it for a second: where replication
// is asynchronous, what it committed meanwhile is lost.
func (p *patroniCluster) killLagging(ctx context.Context) error {
	n, server, err := p.victim(ctx)
	if err != nil {
		return err
	}
	var receivers []int
	for _, standby := range p.nodes {
		if standby.name == n.name {
			continue
		}
		pid, err := standby.postmaster()
		if errors.Is(err, fs.ErrNotExist) {
			continue // Patroni makes it a standby anew
		}
		if err != nil {
			return err
		}
		for _, child := range program.Started(pid) {
			title, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if strings.Contains(string(title), "walreceiver") {
				receivers = append(receivers, child)
			}
		}
	}
	if len(receivers) == 0 {
		return errors.New("no standby receives anything")
	}
	if err := program.Signal(syscall.SIGSTOP, receivers...); err != nil {
		return err
	}
	time.Sleep(time.Second)
	err = errors.Join(n.Kill(), program.Kill(server))
	time.Sleep(100 * time.Millisecond) // for the sockets to close: what is in them is lost, too
	if err := errors.Join(err, program.Signal(syscall.SIGCONT, receivers...)); err != nil {
		return err
	}
	time.Sleep(gone)
	return n.Start()
}
