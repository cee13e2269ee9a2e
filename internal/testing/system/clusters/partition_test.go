//go:build linux

package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// canCut is why nodes cannot be cut off here, or nil.
func canCut() error {
	if os.Getuid() != 0 {
		return errors.New("only root cuts nodes off")
	}
	_, err := exec.LookPath("iptables")
	return err
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
			ports = append(ports, other.ports...)
		}
		rules = append(rules, []string{
			"mangle", "OUTPUT", "-o", "lo", "-p", "tcp", "-m", "owner", "--uid-owner", fmt.Sprint(from.As.ID()),
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
	rules = append(rules, []string{"filter", "INPUT", "-i", "lo", "-p", "tcp", "-m", "connmark", "--mark", cutOff, "-j",
		"DROP"})
	for _, rule := range rules {
		change := func(how string) error {
			out, err := exec.CommandContext(context.WithoutCancel(ctx), "iptables",
				append([]string{"-w", "-t", rule[0], how}, rule[1:]...)...).CombinedOutput()
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
