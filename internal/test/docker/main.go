package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/ory/dockertest/v3"
	dc "github.com/ory/dockertest/v3/docker"
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
	KindPostgres: {
		repository: "postgres", tag: "17", port: "5432/tcp",
		env: []string{"POSTGRES_PASSWORD=dblock"},
		cmd: []string{"postgres", "-c", "fsync=off", "-c", "max_connections=300"},
		dsn: "postgres://postgres:dblock@%s/postgres?sslmode=disable",
	},
	KindMySQL: {
		repository: "mysql", tag: "8.4", port: "3306/tcp",
		env: []string{"MYSQL_ROOT_PASSWORD=dblock", "MYSQL_DATABASE=test"},
		cmd: []string{"mysqld", "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--max-connections=300"},
		dsn: "root:dblock@tcp(%s)/test",
	},
	KindMariaDB: {
		repository: "mariadb", tag: "11.4", port: "3306/tcp",
		env: []string{"MARIADB_ROOT_PASSWORD=dblock", "MARIADB_DATABASE=test"},
		cmd: []string{"mariadbd", "--innodb-flush-log-at-trx-commit=2", "--max-connections=300"},
		dsn: "root:dblock@tcp(%s)/test",
	},
}

// container is a server in Docker.
type container struct {
	kind, dsn string
	pool      *dockertest.Pool
	resource  *dockertest.Resource
}

// startContainer starts a server in Docker and waits until it answers. With killable it keeps its
// port over a restart, and it is removed by remove only. The settings are arguments of its command
// line.
func startContainer(ctx context.Context, kind string, killable bool, settings ...string) (*Server, error) {
	pool, err := daemon(ctx)
	if err != nil {
		return nil, err
	}
	im := images[kind]
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
		Labels:       map[string]string{"dblock.test": kind},
		PortBindings: map[dc.Port][]dc.PortBinding{im.port: {binding}},
	}, func(c *dc.HostConfig) {
		c.AutoRemove = !killable
		c.PublishAllPorts = false
	})
	if err != nil {
		return nil, fmt.Errorf("run %s:%s: %w", im.repository, im.tag, err)
	}
	c := &container{
		kind: kind, pool: pool, resource: resource,
		dsn: fmt.Sprintf(im.dsn, net.JoinHostPort(daemonHost(), resource.GetPort(string(im.port)))),
	}
	if err := ready(ctx, kind, c.dsn, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("%s:%s: %w", im.repository, im.tag, err), c.remove())
	}
	return &Server{Kind: kind, DSN: c.dsn, From: "Docker, " + im.repository + ":" + im.tag, control: c}, nil
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

func (c *container) start(ctx context.Context) error {
	if err := c.pool.Client.StartContainer(c.resource.Container.ID, nil); err != nil {
		return err
	}
	return ready(ctx, c.kind, c.dsn, nil)
}

func (c *container) kill() error {
	return c.pool.Client.KillContainer(dc.KillContainerOptions{ID: c.resource.Container.ID, Signal: dc.SIGKILL})
}

func (c *container) pause() error  { return c.pool.Client.PauseContainer(c.resource.Container.ID) }
func (c *container) resume() error { return c.pool.Client.UnpauseContainer(c.resource.Container.ID) }

func (c *container) remove() error {
	err := c.pool.Purge(c.resource)
	c.pool.Client.HTTPClient.CloseIdleConnections()
	return err
}
