package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dblock-go/dblock/internal/testing/program"
	"github.com/dblock-go/dblock/migrate"
)

const (
	serverLimit   = 30 * time.Second // for a server to answer
	look          = 50 * time.Millisecond
	versionPrefix = "Zookeeper version: "
)

// servers are the servers that peers run on.
type servers struct {
	at       map[string]string // by the name in peer.server: an address or a DSN
	versions []string
	ends     []func()
}

// findServers makes databases in those that the environment names, and starts the others.
func findServers(ctx context.Context, dir string) (s *servers, err error) {
	s = &servers{at: map[string]string{}}
	for _, f := range []func(context.Context, string) error{s.databases, s.redis, s.etcd, s.zookeeper} {
		if err := f(ctx, dir); err != nil {
			s.stop()
			return nil, err
		}
	}
	return s, nil
}

func (s *servers) stop() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// databases makes a database with dblock's tables on each server.
func (s *servers) databases(ctx context.Context, dir string) error {
	file := "file:" + filepath.Join(dir, "peers.db") +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	if err := s.migrated(ctx, "sqlite", "sqlite", migrate.SQLite, file, "SELECT 'SQLite ' || sqlite_version() || "+
		"', WAL, synchronous=FULL'"); err != nil {
		return err
	}
	for _, d := range []struct {
		server, driver string
		engine         migrate.Engine
		title          string
	}{
		{"postgres", "pgx", migrate.Postgres, "SELECT 'PostgreSQL ' || current_setting('server_version') || " +
			"', fsync=' || current_setting('fsync') || ', synchronous_commit=' || " +
			"current_setting('synchronous_commit')"},
		{"mysql", "mysql", migrate.MySQL, "SELECT concat('MySQL ', version(), ', innodb_flush_log_at_trx_commit=', " +
			"@@innodb_flush_log_at_trx_commit, ', sync_binlog=', @@sync_binlog)"},
		{"mariadb", "mysql", migrate.MySQL, "SELECT concat('MariaDB ', version(), " +
			"', innodb_flush_log_at_trx_commit=', @@innodb_flush_log_at_trx_commit)"},
	} {
		dsn := os.Getenv("DBLOCK_BENCH_" + strings.ToUpper(d.server) + "_DSN")
		if dsn == "" {
			continue
		}
		own, err := s.database(ctx, d.driver, dsn)
		if err == nil {
			err = s.migrated(ctx, d.server, d.driver, d.engine, own, d.title)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.server, err)
		}
	}
	return nil
}

// database makes a database that is dropped at the end.
func (s *servers) database(ctx context.Context, driver, dsn string) (own string, err error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return "", err
	}
	name := "peers_" + strings.ToLower(rand.Text()[:12])
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	drop := "DROP DATABASE " + name
	if driver == "pgx" {
		drop += " WITH (FORCE)"
		u, err := url.Parse(dsn)
		if err != nil {
			return "", err
		}
		u.Path = "/" + name
		own = u.String()
	} else {
		config, err := mysqldriver.ParseDSN(dsn)
		if err != nil {
			return "", err
		}
		config.DBName = name
		own = config.FormatDSN()
	}
	s.ends = append(s.ends, func() {
		_, _ = db.ExecContext(context.WithoutCancel(ctx), drop)
		_ = db.Close()
	})
	return own, nil
}

func (s *servers) migrated(ctx context.Context, server, driver string, engine migrate.Engine, dsn, title string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db, engine); err != nil {
		return err
	}
	if engine == migrate.Postgres {
		if err := bareTable(ctx, db); err != nil {
			return err
		}
	}
	var version string
	if err := db.QueryRowContext(ctx, title).Scan(&version); err != nil {
		return err
	}
	s.at[server], s.versions = dsn, append(s.versions, version)
	return nil
}

// redis starts one server with its defaults, and one that syncs each write.
func (s *servers) redis(ctx context.Context, dir string) error {
	binary := os.Getenv("PEERS_REDIS_SERVER")
	if binary == "" {
		return nil
	}
	for name, further := range map[string][]string{"redis": nil,
		"redis-always": {"--appendonly", "yes", "--appendfsync", "always"}} {
		at, port, err := freePort()
		if err != nil {
			return err
		}
		args := append([]string{binary, "--port", port, "--bind", "127.0.0.1", "--dir", "."}, further...)
		if err := s.begin(ctx, dir, name, at, args); err != nil {
			return err
		}
	}
	c := openRedis(s.at["redis"])
	defer c.Close()
	info, err := c.InfoMap(ctx, "server").Result()
	if err == nil {
		s.versions = append(s.versions, "Redis "+info["Server"]["redis_version"]+
			", as it starts without a configuration, and with appendonly yes, appendfsync always")
	}
	return err
}

func (s *servers) etcd(ctx context.Context, dir string) error {
	binary := os.Getenv("PEERS_ETCD")
	if binary == "" {
		return nil
	}
	at, _, err := freePort()
	if err != nil {
		return err
	}
	member, _, err := freePort()
	if err != nil {
		return err
	}
	if err := s.begin(ctx, dir, "etcd", at, []string{binary, "--data-dir", "data", "--log-level", "error",
		"--listen-client-urls", "http://" + at, "--advertise-client-urls", "http://" + at,
		"--listen-peer-urls", "http://" + member, "--initial-advertise-peer-urls", "http://" + member,
		"--initial-cluster", "default=http://" + member}); err != nil {
		return err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{at}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	status, err := c.Status(ctx, at)
	if err == nil {
		s.versions = append(s.versions, "etcd "+status.Version+", one member, which syncs")
	}
	return err
}

func (s *servers) zookeeper(ctx context.Context, dir string) error {
	command := strings.Fields(os.Getenv("PEERS_ZOOKEEPER")) // up to the arguments of ZooKeeperServerMain
	if len(command) == 0 {
		return nil
	}
	at, port, err := freePort()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "zoo.cfg")
	config := "clientPort=" + port + "\nclientPortAddress=127.0.0.1\ntickTime=2000\nmaxClientCnxns=0\n" +
		"admin.enableServer=false\ndataDir=" + filepath.Join(dir, "zookeeper", "data") + "\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	if err := s.begin(ctx, dir, "zookeeper", at, append(command, file)); err != nil {
		return err
	}
	said, err := srvr(ctx, at)
	if err != nil {
		return err
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(said, versionPrefix), "-")
	s.versions = append(s.versions, "ZooKeeper "+version+", one server, which syncs (forceSync)")
	return nil
}

// srvr returns the answer of a ZooKeeper to the word srvr, when it serves. The client's FLWSrvr
// does not understand that answer.
func srvr(ctx context.Context, at string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
		if err != nil {
			return "", err
		}
		if _, err = conn.Write([]byte("srvr")); err != nil {
			return "", errors.Join(err, conn.Close())
		}
		text, err := io.ReadAll(conn)
		if err := errors.Join(err, conn.Close()); err != nil {
			return "", err
		}
		if strings.HasPrefix(string(text), versionPrefix) {
			return string(text), nil
		}
		if pause(ctx, look); ctx.Err() != nil {
			return "", fmt.Errorf("ZooKeeper does not serve: %s", text)
		}
	}
}

// begin starts a server in a folder of its own, and waits until it listens.
func (s *servers) begin(ctx context.Context, dir, name, at string, args []string) error {
	own := filepath.Join(dir, name)
	if err := os.Mkdir(own, 0o700); err != nil {
		return err
	}
	p := &program.Program{Dir: own, Args: args}
	if err := p.Start(); err != nil {
		return err
	}
	s.ends = append(s.ends, func() { _ = p.Kill() })
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
		if err == nil {
			s.at[name] = at
			return conn.Close()
		}
		select {
		case <-p.Ended():
		case <-ctx.Done():
		case <-time.After(look):
			continue
		}
		said, _ := os.ReadFile(p.Log())
		return fmt.Errorf("%s did not start: %w\n%s", name, err, said)
	}
}

// freePort returns an address on which nothing listens, and its port.
func freePort() (at, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	at = l.Addr().String()
	_, port, err = net.SplitHostPort(at)
	if err == nil {
		err = l.Close()
	}
	return at, port, err
}
