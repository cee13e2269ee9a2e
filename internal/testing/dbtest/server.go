package dbtest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

// startTimeout is how long a killed server may take to come back: PostgreSQL waits for the last
// backend of the old one to go.
const startTimeout = time.Minute

// control is what can be done to a server that was started here.
type control interface {
	// start starts a server that was killed, on its old data and port, and waits until it answers.
	start(ctx context.Context) error
	// kill ends it with SIGKILL, all its processes.
	kill() error
	// pause stops it with SIGSTOP, all its processes; resume lets it go on.
	pause() error
	resume() error
	// remove ends it for good, whatever state it is in, with its data.
	remove() error
}

// Spent is the processor time of a server that was started here from local binaries. ok is false
// for others.
func (s *Server) Spent() (user, kernel time.Duration, ok bool) {
	if l, ok := s.control.(interface {
		spent() (user, kernel time.Duration)
	}); ok {
		user, kernel = l.spent()
		return user, kernel, true
	}
	return 0, 0, false
}

// OwnPostgres starts a PostgreSQL server for this test alone, which may kill it. Without local
// binaries and without Docker the test is skipped, or fails where DBLOCK_TEST_REQUIRE asks for the
// kind.
func OwnPostgres(t testing.TB) *Server { t.Helper(); return Own(t, KindPostgres) }

// OwnMariaDB is OwnPostgres for MariaDB.
func OwnMariaDB(t testing.TB) *Server { t.Helper(); return Own(t, KindMariaDB) }

// OwnMySQL is OwnPostgres for MySQL.
func OwnMySQL(t testing.TB) *Server { t.Helper(); return Own(t, KindMySQL) }

// Own is OwnPostgres for any kind, with further arguments of the server's command line.
func Own(t testing.TB, kind string, settings ...string) *Server {
	t.Helper()
	if only := list("DBLOCK_TEST_ONLY"); len(only) > 0 && !named(kind) {
		t.Skip("dbtest: ", kind, " is ", errLeftOut)
	}
	server, err := startLocal(t.Context(), kind, settings...)
	if err != nil {
		var dockerErr error
		if server, dockerErr = startContainer(t.Context(), kind, true, settings...); dockerErr != nil {
			err = errors.Join(err, dockerErr)
			note(kind, err)
			if named(kind) {
				t.Fatalf("dbtest: no %s of the test's own: %v", kind, err)
			}
			t.Skipf("dbtest: no %s of the test's own: %v", kind, err)
		}
	}
	server.tb = t
	t.Cleanup(func() {
		_ = server.leave() // it may have been killed
		assert.NoError(t, server.remove(), "dbtest: remove", kind)
	})
	return server
}

// note makes Run say that a kind was left out.
func note(kind string, err error) {
	servers.Lock()
	defer servers.Unlock()
	if r := servers.m[kind]; r.server == nil && r.err == nil {
		servers.m[kind] = result{err: err}
	}
}

// Kill ends the test's own server with SIGKILL, all its processes. Failures of this and the
// following are errors of the test.
func (s *Server) Kill() { s.tb.Helper(); s.must("kill", s.kill()) }

// Start starts the server again after Kill, on the same data and port, and returns when it answers.
func (s *Server) Start() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.tb.Context()), startTimeout)
	defer cancel()
	s.must("start", s.start(ctx))
}

// Pause stops the server with SIGSTOP: connections stay open, and nothing answers.
func (s *Server) Pause() { s.tb.Helper(); s.must("pause", s.pause()) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.tb.Helper(); s.must("resume", s.resume()) }

func (s *Server) must(what string, err error) {
	s.tb.Helper()
	assert.NoError(s.tb, err, "dbtest", what, s.Kind)
}

// freePort finds a port of 127.0.0.1 that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
