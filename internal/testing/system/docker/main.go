// Command docker runs a database server in Docker for package dbtest: docker [-killable] KIND
// [SETTING…]. The settings are arguments of the server's command line.
//
// It prints the image and the server's DSN in one line as soon as the container runs, which is
// before the server answers. Then it does what the lines of its standard input say (kill, start,
// pause, resume), and answers each with a line: ok, or what went wrong. It removes the container
// when its standard input ends.
//
// It is a program of its own because dockertest is not to be a requirement of the module that users
// import.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
)

// daemonTimeout is how long a Docker daemon has to answer: machines without one must not wait.
const daemonTimeout = 1500 * time.Millisecond

// image is how a kind of server runs in Docker.
type image struct {
	repository, tag string
	env, cmd        []string
	port            dc.Port
	dsn             string // of the port's address
}

var images = map[string]image{
	dbtest.KindPostgres: {
		repository: "postgres", tag: "17", port: "5432/tcp",
		env: []string{"POSTGRES_PASSWORD=dblock"},
		cmd: []string{"postgres", "-c", "fsync=off", "-c", "max_connections=300"},
		dsn: "postgres://postgres:dblock@%s/postgres?sslmode=disable",
	},
	dbtest.KindMySQL: {
		repository: "mysql", tag: "8.4", port: "3306/tcp",
		env: []string{"MYSQL_ROOT_PASSWORD=dblock", "MYSQL_DATABASE=test"},
		cmd: []string{"mysqld", "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--max-connections=300"},
		dsn: "root:dblock@tcp(%s)/test",
	},
	dbtest.KindMariaDB: {
		repository: "mariadb", tag: "11.4", port: "3306/tcp",
		env: []string{"MARIADB_ROOT_PASSWORD=dblock", "MARIADB_DATABASE=test"},
		cmd: []string{"mariadbd", "--innodb-flush-log-at-trx-commit=2", "--max-connections=300"},
		dsn: "root:dblock@tcp(%s)/test",
	},
}

func main() {
	killable := flag.Bool("killable", false, "keep the port over a restart")
	flag.Parse()
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // the end of the standard input comes with them
	if err := run(os.Stdin, os.Stdout, *killable, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, killable bool, args []string) error {
	if len(args) == 0 || images[args[0]].repository == "" {
		return fmt.Errorf("docker [-killable] KIND [SETTING…]: no kind of server: %q", args)
	}
	c, err := startContainer(images[args[0]], killable, args[1:])
	if err != nil {
		return err
	}
	fmt.Fprintln(out, c.image.name(), c.dsn)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := c.do(lines.Text()); err != nil {
			fmt.Fprintln(out, strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Fprintln(out, "ok")
	}
	return c.remove()
}

func (im image) name() string { return im.repository + ":" + im.tag }

// container is a server in Docker.
type container struct {
	image
	dsn      string
	pool     *dockertest.Pool
	resource *dockertest.Resource
}

// startContainer starts a server in Docker. With killable it keeps its port over a restart, and it
// is removed by remove only.
func startContainer(im image, killable bool, settings []string) (*container, error) {
	pool, err := daemon(context.Background())
	if err != nil {
		return nil, err
	}
	binding := dc.PortBinding{}
	if host := daemonHost(); host == "127.0.0.1" {
		binding.HostIP = host
	}
	if killable { // Docker gives another free port at each start
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		binding.HostPort = strconv.Itoa(port)
	}
	resource, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository: im.repository, Tag: im.tag, Env: im.env, Cmd: append(slices.Clone(im.cmd), settings...),
		Labels:       map[string]string{"dblock.test": im.repository},
		PortBindings: map[dc.Port][]dc.PortBinding{im.port: {binding}},
	}, func(c *dc.HostConfig) {
		c.AutoRemove = !killable
		c.PublishAllPorts = false
	})
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", im.name(), err)
	}
	return &container{
		image: im, pool: pool, resource: resource,
		dsn: fmt.Sprintf(im.dsn, net.JoinHostPort(daemonHost(), resource.GetPort(string(im.port)))),
	}, nil
}

// daemon finds a Docker daemon that answers.
func daemon(ctx context.Context) (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	if err := pool.Client.PingWithContext(ctx); err != nil {
		if os.Getenv("DOCKER_HOST") == "" {
			return nil, errors.New("no daemon")
		}
		return nil, fmt.Errorf("no daemon answers: %w", err)
	}
	return pool, nil
}

// daemonHost is where the ports of containers are.
func daemonHost() string {
	u, err := url.Parse(os.Getenv("DOCKER_HOST"))
	if err != nil || u.Hostname() == "" || u.Hostname() == "localhost" {
		return "127.0.0.1"
	}
	return u.Hostname()
}

// freePort finds a port of 127.0.0.1 that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (c *container) do(what string) error {
	client, id := c.pool.Client, c.resource.Container.ID
	switch what {
	case "kill":
		return client.KillContainer(dc.KillContainerOptions{ID: id, Signal: dc.SIGKILL})
	case "start":
		return client.StartContainer(id, nil)
	case "pause":
		return client.PauseContainer(id)
	case "resume":
		return client.UnpauseContainer(id)
	}
	return fmt.Errorf("what is %q?", what)
}

func (c *container) remove() error {
	err := c.pool.Purge(c.resource)
	c.pool.Client.HTTPClient.CloseIdleConnections()
	return err
}
