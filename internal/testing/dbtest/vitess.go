package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dblock-go/dblock/internal/testing/program"
)

// vitess is vtgate with a tablet for each keyspace, in one process, over a MySQL server. What is
// done to the server is done to that process. The MySQL server lives until the end.
type vitess struct {
	*local
	below *local
}

func (v *vitess) remove() error { return errors.Join(v.local.remove(), v.below.remove()) }

// RestartBelow kills the MySQL server below Vitess, and starts it again after a pause. It returns
// when the server answers.
func (s *Server) RestartBelow(ctx context.Context, pause time.Duration) error {
	below := s.control.(*vitess).below
	if err := below.kill(); err != nil {
		return err
	}
	<-time.After(pause)
	return below.start(ctx)
}

// endConnection is a procedure of the MySQL server below Vitess. A KILL of vtgate is about its own
// connections, of which it has no list.
const endConnection = "CREATE PROCEDURE end_connection(id BIGINT) KILL CONNECTION id"

// EndBelow ends all connections of a keyspace's tablets to MySQL, with their transactions, and
// returns their number. db is a pool of that keyspace, on a server that was started here.
func EndBelow(ctx context.Context, db *sql.DB) (ended int, err error) {
	rows, err := db.QueryContext(ctx, "SELECT id FROM performance_schema.processlist WHERE db = DATABASE() AND "+
		"id <> CONNECTION_ID()")
	if err != nil {
		return 0, err
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if _, err := db.ExecContext(ctx, fmt.Sprintf("CALL app.end_connection(%d)", id)); err == nil {
			ended++ // otherwise it has gone by itself
		}
	}
	return ended, rows.Err()
}

// startVitess starts a MySQL server, and vtcombo over it. A database of a test is a keyspace with
// one shard, which vtcombo makes for CREATE DATABASE, and forgets when it ends. The keyspace app
// is always there. Its name comes first, and so the named locks of all keyspaces are there. The
// settings are arguments of vtcombo's command line.
func startVitess(ctx context.Context, settings []string) (*Server, error) {
	vtcombo, err := vtcomboPath()
	if err != nil {
		return nil, err
	}
	server, err := startLocal(ctx, KindMySQL, "--max-connections=2000")
	if err != nil {
		return nil, err
	}
	v := &vitess{below: server.control.(*local)}
	if err := errors.Join(server.admin(endConnection), server.leave()); err != nil {
		return nil, errors.Join(err, v.below.remove())
	}
	if v.local, err = startVtcombo(ctx, vtcombo, v.below, settings); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", vtcombo, err), v.below.remove())
	}
	return &Server{Kind: KindVitess, DSN: v.dsn, From: vtcombo, control: v}, nil
}

// vtcomboPath is the path of vtcombo.
func vtcomboPath() (string, error) {
	if path := os.Getenv("DBLOCK_TEST_VTCOMBO"); path != "" {
		return path, nil
	}
	path, err := exec.LookPath("vtcombo")
	if err != nil {
		return "", errors.New("vtcombo is not in PATH")
	}
	return path, nil
}

func startVtcombo(ctx context.Context, vtcombo string, below *local, settings []string) (*local, error) {
	dir, err := os.MkdirTemp("", "dblock-vitess-")
	if err != nil {
		return nil, err
	}
	as := below.program.As
	l := &local{kind: KindVitess, dir: dir, program: &program.Program{As: as, Dir: dir}}
	if err := as.Own(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	args := []string{"env", "VTDATAROOT=" + dir, vtcombo,
		"--proto-topo", `keyspaces:{name:"app" shards:{name:"0" db_name_override:"test"}} cells:"test"`,
		"--dbddl-plugin", "vttest", "--mysql-auth-server-impl", "none", "--bind-address", "127.0.0.1",
		"--grpc-bind-address", "127.0.0.1", "--mysql-server-bind-address", "127.0.0.1",
		"--mysql-server-version", "8.4.6-Vitess", "--log-level", "error", "--tablet-refresh-interval", "1s",
		"--db-socket", filepath.Join(below.dir, "s"), "--db-charset", "utf8mb4", "--mycnf-server-id", "1",
		"--queryserver-config-pool-size", "50", "--queryserver-config-transaction-cap", "100",
	}
	for _, user := range []string{"app", "dba", "allprivs", "appdebug", "filtered", "repl", "erepl", "clone"} {
		args = append(args, "--db-"+user+"-user", "root")
	}
	for _, flag := range []string{"--port", "--grpc-port", "--mysql-server-port"} {
		port, err := freePort()
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		args = append(args, flag, strconv.Itoa(port))
		l.dsn = fmt.Sprintf("root@tcp(127.0.0.1:%d)/app", port)
	}
	l.program.Args = append(args, settings...)
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.remove())
	}
	return l, nil
}
