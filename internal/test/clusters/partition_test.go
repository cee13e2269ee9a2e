//go:build linux

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// accounts are those under which nodes run that are cut off: by their account packets are told
// apart, since all nodes have the same address.
var accounts = []string{"daemon", "games", "news"}

// canCut is why nodes cannot be cut off here, or nil.
func canCut() error {
	if os.Getuid() != 0 {
		return errors.New("only root cuts nodes off")
	}
	_, err := exec.LookPath("iptables")
	return err
}

// separate has each node run under an account of its own, one node after the other.
func (c *mysqlCluster) separate(healthy func(ctx context.Context) error) error {
	for i, n := range c.nodes {
		u, err := user.Lookup(accounts[i])
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		pid, err := n.pid()
		if err != nil {
			return err
		}
		if err := signal(syscall.SIGTERM, pid); err != nil {
			return err
		}
		for deadline := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(100 * time.Millisecond) {
			if state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); strings.Contains(string(state), ") Z ") {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s does not end", n.dir)
			}
		}
		if err := filepath.WalkDir(n.dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, uid, gid))
		}); err != nil {
			return err
		}
		n.program.uid, n.program.gid = uint32(uid), uint32(gid)
		if _, err := n.program.start(filepath.Join(n.dir, "out"), c.first...); err != nil {
			return err
		}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := healthy(ctx)
			cancel()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s does not come back: %w", n.dir, err)
			}
		}
	}
	return nil
}

var listening = regexp.MustCompile(`(?:^--port=|gmcast\.listen_addr=tcp://127\.0\.0\.1:|ist\.recv_addr=127\.0\.0\.1:)(\d+)`)

// ports are those that a node listens on.
func (n *mysqlNode) ports() (ports []string) {
	for _, argument := range n.program.argv {
		for part := range strings.SplitSeq(argument, ";") {
			part = strings.TrimPrefix(part, "--wsrep-provider-options=")
			if found := listening.FindStringSubmatch(part); found != nil {
				ports = append(ports, found[1])
			}
		}
	}
	return ports
}

// cutOff is the mark of connections between a node and the others.
const cutOff = "77"

// cut cuts a node that serves off from the other nodes, and not from its clients, for longer than
// the others wait for it.
func (c *mysqlCluster) cut(ctx context.Context) (err error) {
	n, err := c.writer()
	if err != nil {
		return err
	}
	var rules [][]string
	mark := func(from *mysqlNode, to ...*mysqlNode) {
		var ports []string
		for _, other := range to {
			ports = append(ports, other.ports()...)
		}
		rules = append(rules, []string{
			"mangle", "OUTPUT", "-o", "lo", "-p", "tcp", "-m", "owner", "--uid-owner", fmt.Sprint(from.program.uid),
			"-m", "multiport", "--dports", strings.Join(ports, ","), "-j", "CONNMARK", "--set-mark", cutOff,
		})
	}
	var others []*mysqlNode
	for _, other := range c.nodes {
		if other != n {
			others = append(others, other)
			mark(other, n)
		}
	}
	mark(n, others...)
	rules = append(rules, []string{"filter", "INPUT", "-i", "lo", "-p", "tcp", "-m", "connmark", "--mark", cutOff, "-j", "DROP"})
	for _, rule := range rules {
		change := func(how string) error {
			out, err := exec.CommandContext(context.WithoutCancel(ctx), "iptables", append([]string{"-w", "-t", rule[0], how}, rule[1:]...)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("iptables %v: %w: %s", rule, err, out)
			}
			return nil
		}
		if err := change("-A"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, change("-D")) }()
	}
	time.Sleep(2 * away)
	return nil
}
