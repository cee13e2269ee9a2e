//go:build linux

package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
)

// postgresNode is a server under Patroni.
type postgresNode struct {
	name, dir  string
	port, rest string
	pidFile    string // of Patroni
}

// postmaster is the id of the server's process.
func (n postgresNode) postmaster() (int, error) {
	return pidIn(filepath.Join(n.dir, "data", "postmaster.pid"))
}

type patroniCluster struct {
	folder  string
	nodes   []postgresNode
	running map[string]program // Patroni's, by the node
	helpers []int              // HAProxy and PgBouncer
}

var restPort = regexp.MustCompile(`restapi: \{listen: "127\.0\.0\.1:(\d+)"`)

// patroni is the cluster in a folder. synchronous: it has synchronous_mode.
func patroni(folder string, synchronous bool) (*cluster, error) {
	p := &patroniCluster{folder: folder, running: map[string]program{}}
	for i := 1; ; i++ {
		n := postgresNode{name: fmt.Sprintf("n%d", i), dir: filepath.Join(folder, fmt.Sprintf("n%d", i)), pidFile: filepath.Join(folder, fmt.Sprintf("n%d.pid", i))}
		config, err := os.ReadFile(filepath.Join(n.dir, "patroni.yml"))
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		port, unread := pidIn(filepath.Join(n.dir, "port"))
		found := restPort.FindSubmatch(config)
		if err := errors.Join(err, unread); err != nil || found == nil {
			return nil, fmt.Errorf("%s: %w, no port of its interface", n.dir, err)
		}
		n.port, n.rest = strconv.Itoa(port), string(found[1])
		pid, err := pidIn(n.pidFile)
		if err != nil {
			return nil, err
		}
		if p.running[n.name], err = programOf(pid); err != nil {
			return nil, err
		}
		p.nodes = append(p.nodes, n)
	}
	if len(p.nodes) < 3 {
		return nil, fmt.Errorf("%d nodes of Patroni in %s", len(p.nodes), folder)
	}
	haproxy, err := p.haproxy()
	if err != nil {
		return nil, err
	}
	pooler, err := p.pgbouncer(haproxy)
	if err != nil {
		p.close()
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
		engine: migrate.Postgres, driver: "pgx", door: dsn("127.0.0.1:"+haproxy, ""), ttl: 20 * time.Second, durable: synchronous,
		apps: []func(...dblock.Option) (*app, error){
			through("HAProxy", dsn("127.0.0.1:"+haproxy, ""), ""),
			through("HAProxy", dsn("127.0.0.1:"+haproxy, ""), ""),
			through("PgBouncer", dsn("127.0.0.1:"+pooler, "&default_query_exec_mode=exec"), dsn("127.0.0.1:"+haproxy, "")),
			func(options ...dblock.Option) (*app, error) {
				a, err := onPostgres("all hosts", dsn(strings.Join(all, ","), "&target_session_attrs=read-write"), "", options...)
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
			{"stop the machine", p.stopMachine},
			{"kill a lagging primary", p.killLagging},
		},
		healthy: p.healthy, close: p.close,
	}
	return c, nil
}

// freePort is one that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// helper runs a program beside the cluster, under an account of its own where the test is root's.
func (p *patroniCluster) helper(account, config, text string, argv ...string) error {
	path := filepath.Join(p.folder, config)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	program := program{argv: append(argv, path), env: os.Environ(), dir: "/"}
	if u, err := user.Lookup(account); err == nil && account != "" {
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		program.uid, program.gid = uint32(uid), uint32(gid)
	}
	pid, err := program.start(path + ".log")
	p.helpers = append(p.helpers, pid)
	return err
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
	err = p.helper("", "haproxy.cfg", text, "haproxy", "-db", "-f")
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
	return port, p.helper("postgres", "pgbouncer.ini", `[databases]
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
	document, err := os.ReadFile("../../../docs/clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{haproxyConfig("127.0.0.1:5000"), pgbouncerConfig} {
		if !strings.Contains(string(document), text) {
			t.Errorf("docs/clusters.md does not have\n%s", text)
		}
	}
}

func (p *patroniCluster) close() {
	_ = signal(syscall.SIGTERM, p.helpers...)
}

// members is what Patroni says of the cluster.
func (p *patroniCluster) members(ctx context.Context) (roles map[string]string, err error) {
	for _, n := range p.nodes {
		var all struct {
			Members []struct{ Name, Role, State string }
		}
		within, cancel := context.WithTimeout(ctx, time.Second)
		request, failed := http.NewRequestWithContext(within, http.MethodGet, "http://127.0.0.1:"+n.rest+"/cluster", nil)
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
	if leaders != 1 || following != len(p.nodes)-1 {
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
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:"+n.rest+"/reinitialize", strings.NewReader(`{"force": true}`))
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

// again starts a node's Patroni.
func (p *patroniCluster) again(n postgresNode) error {
	pid, err := p.running[n.name].start(filepath.Join(n.dir, "log"))
	if err != nil {
		return err
	}
	return os.WriteFile(n.pidFile, []byte(strconv.Itoa(pid)), 0o644)
}

func (p *patroniCluster) switchover(ctx context.Context) error {
	n, err := p.primary(ctx)
	if err != nil {
		return err
	}
	program := p.running[n.name]
	ctl := filepath.Join(filepath.Dir(program.argv[1]), "patronictl")
	c := exec.CommandContext(ctx, program.argv[0], ctl, "-c", filepath.Join(n.dir, "patroni.yml"), "switchover", "--leader", n.name, "--force")
	c.Env = program.env
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (p *patroniCluster) killPostgres(ctx context.Context) error {
	n, err := p.primary(ctx)
	if err != nil {
		return err
	}
	pid, err := n.postmaster()
	if err != nil {
		return err
	}
	return signal(syscall.SIGKILL, family(pid)...)
}

// machine are all processes of a node: Patroni first, which would start the others anew.
func (n postgresNode) machine() ([]int, error) {
	patroni, err := pidIn(n.pidFile)
	if err != nil {
		return nil, err
	}
	server, err := n.postmaster()
	if err != nil {
		return nil, err
	}
	return append(family(patroni), family(server)...), nil
}

// victim is the primary, and all processes of its node.
func (p *patroniCluster) victim(ctx context.Context) (n postgresNode, machine []int, err error) {
	if n, err = p.primary(ctx); err == nil {
		machine, err = n.machine()
	}
	return n, machine, err
}

// away is how long a node stays away: longer than Patroni waits for it.
const away = 15 * time.Second

func (p *patroniCluster) killMachine(ctx context.Context) error {
	n, all, err := p.victim(ctx)
	if err != nil {
		return err
	}
	if err := signal(syscall.SIGKILL, all...); err != nil {
		return err
	}
	time.Sleep(away)
	return p.again(n)
}

// killPatroni leaves an orphan: the primary goes on without what could demote it.
func (p *patroniCluster) killPatroni(ctx context.Context) error {
	n, err := p.primary(ctx)
	if err != nil {
		return err
	}
	pid, err := pidIn(n.pidFile)
	if err != nil {
		return err
	}
	if err := signal(syscall.SIGKILL, pid); err != nil {
		return err
	}
	time.Sleep(2 * away)
	return p.again(n)
}

// stopMachine has a node sleep beyond the TTL of Patroni and that of the clients. It wakes up as a
// primary that knows nothing.
func (p *patroniCluster) stopMachine(ctx context.Context) error {
	_, all, err := p.victim(ctx)
	if err != nil {
		return err
	}
	if err := signal(syscall.SIGSTOP, all...); err != nil {
		return err
	}
	time.Sleep(2 * away)
	return signal(syscall.SIGCONT, all...)
}

// killLagging kills a primary whose standbys have not heard of it for a second: where replication
// is asynchronous, what it committed meanwhile is lost.
func (p *patroniCluster) killLagging(ctx context.Context) error {
	n, all, err := p.victim(ctx)
	if err != nil {
		return err
	}
	var receivers []int
	for _, standby := range p.nodes {
		if standby.name == n.name {
			continue
		}
		pid, err := standby.postmaster()
		if err != nil {
			return err
		}
		for _, child := range family(pid)[1:] {
			title, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if strings.Contains(string(title), "walreceiver") {
				receivers = append(receivers, child)
			}
		}
	}
	if len(receivers) == 0 {
		return errors.New("no standby receives anything")
	}
	if err := signal(syscall.SIGSTOP, receivers...); err != nil {
		return err
	}
	time.Sleep(time.Second)
	err = signal(syscall.SIGKILL, all...)
	time.Sleep(100 * time.Millisecond) // for the sockets to close: what is in them is lost, too
	if err := errors.Join(err, signal(syscall.SIGCONT, receivers...)); err != nil {
		return err
	}
	time.Sleep(away)
	return p.again(n)
}
