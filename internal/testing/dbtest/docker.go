package dbtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	// dialTimeout is how long a Docker daemon has to accept: machines without one must not wait.
	dialTimeout = 1500 * time.Millisecond

	// helperTimeout is how long the helper may take to be compiled, to pull its image and to start
	// the container.
	helperTimeout = 5 * time.Minute
)

// helper runs a server in Docker. It is a program of the module internal/testing/system: dockertest
// is not to be a requirement of this one. go.work makes it known here.
var helper = []string{"go", "run", "github.com/dblock-go/dblock/internal/testing/system/docker"}

// container is a server in Docker, in the hands of a helper.
type container struct {
	kind, dsn string
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Reader
	stderr    bytes.Buffer
}

// startContainer starts a server in Docker and waits until it answers. With killable it can be
// killed and started again. The settings are arguments of its command line.
func startContainer(ctx context.Context, kind string, killable bool, settings ...string) (*Server, error) {
	if err := daemon(); err != nil {
		return nil, err
	}
	args := slices.Clone(helper)
	if killable {
		args = append(args, "-killable")
	}
	c := &container{kind: kind, cmd: exec.Command(args[0], append(append(args[1:], kind), settings...)...)}
	c.cmd.WaitDelay = startTimeout // for what go run leaves behind when it is killed
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out, c.cmd.Stderr = in, bufio.NewReader(out), &c.stderr
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(helperTimeout, func() { _ = c.cmd.Process.Kill() })
	line, err := c.out.ReadString('\n')
	late.Stop()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", strings.Join(c.cmd.Args, " "), err), c.remove())
	}
	image, dsn, _ := strings.Cut(strings.TrimSpace(line), " ")
	c.dsn = dsn
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := ready(ctx, kind, dsn, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", image, err), c.remove())
	}
	return &Server{Kind: kind, DSN: dsn, From: "Docker, " + image, control: c}, nil
}

// daemon tells whether somebody listens where a Docker daemon would. Whether it is one, the helper
// finds out.
func daemon() error {
	network, addr := "unix", "/var/run/docker.sock"
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		u, err := url.Parse(host)
		if err != nil {
			return err
		}
		if network, addr = "tcp", u.Host; u.Scheme == "unix" {
			network, addr = "unix", u.Path
		}
	}
	conn, err := net.DialTimeout(network, addr, dialTimeout)
	if err != nil {
		return errors.New("no daemon")
	}
	return conn.Close()
}

// tell makes the helper do something, and returns when it is done.
func (c *container) tell(what string) error {
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		return err
	}
	line, err := c.out.ReadString('\n')
	if err == nil && line != "ok\n" {
		err = errors.New(strings.TrimSpace(line))
	}
	return err
}

func (c *container) start(ctx context.Context) error {
	if err := c.tell("start"); err != nil {
		return err
	}
	return ready(ctx, c.kind, c.dsn, nil)
}

func (c *container) kill() error   { return c.tell("kill") }
func (c *container) pause() error  { return c.tell("pause") }
func (c *container) resume() error { return c.tell("resume") }

// remove ends the helper, which removes the container.
func (c *container) remove() error {
	err := c.in.Close()
	if ended := c.cmd.Wait(); ended != nil {
		err = errors.Join(ended, errors.New(strings.TrimSpace(c.stderr.String())))
	}
	return err
}
