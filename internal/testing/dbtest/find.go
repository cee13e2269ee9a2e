package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/leak"
)

// readyTimeout is how long a server may take from its start to its first answer; a container's
// first start makes its data too. A server that runs already has answerTimeout.
const (
	readyTimeout  = 2 * time.Minute
	answerTimeout = 10 * time.Second
)

// errLeftOut: DBLOCK_TEST_ONLY does not name the kind.
var errLeftOut = errors.New("left out by DBLOCK_TEST_ONLY")

// Server is a database server.
type Server struct {
	Kind string
	DSN  string // its user may create databases
	From string // where it was found, for people
	control
	tb       testing.TB // set where the server is one test's own
	template template
	shelf    shelf

	mu      sync.Mutex           // protects db and encoded
	db      *sql.DB              // nil until it is needed
	encoded map[string]*template // of PostgreSQL, by their encodings
}

// servers has the results of the searches so far, with and without success.
var servers = struct {
	sync.Mutex
	m map[string]result
}{m: make(map[string]result)}

type result struct {
	server *Server
	err    error
}

// Find returns the server of a kind that all tests of this process share. If no server runs, Find
// starts one, with the settings as arguments of its command line.
func Find(kind string, settings ...string) (*Server, error) {
	servers.Lock()
	defer servers.Unlock()
	r, ok := servers.m[kind]
	if !ok {
		r.server, r.err = search(kind, settings...)
		servers.m[kind] = r
	}
	return r.server, r.err
}

// StopAll stops and removes every shared server that was started here, and drops the remaining
// databases of this process on the others.
func StopAll() {
	servers.Lock()
	defer servers.Unlock()
	for _, r := range servers.m {
		if r.server == nil {
			continue
		}
		var err error
		if r.server.control == nil {
			err = errors.Join(r.server.shelf.drop(r.server), r.server.dropTemplates(), r.server.leave())
		} else {
			err = errors.Join(r.server.leave(), r.server.remove())
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "dbtest: stop %s: %v\n", r.server.Kind, err)
		}
	}
	clear(servers.m)
}

func search(kind string, settings ...string) (*Server, error) {
	if only := list("DBLOCK_TEST_ONLY"); len(only) > 0 && !slices.Contains(only, kind) {
		return nil, errLeftOut
	}
	if kind == KindSQLite {
		return &Server{Kind: kind, From: "a file"}, nil
	}
	ctx := context.Background()
	if dsn := os.Getenv(dsnVariable(kind)); dsn != "" {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		if err := ready(ctx, kind, dsn, nil); err != nil {
			return nil, fmt.Errorf("the server of %s does not answer: %w", dsnVariable(kind), err)
		}
		return &Server{Kind: kind, DSN: dsn, From: dsnVariable(kind)}, nil
	}
	server, localErr := startLocal(ctx, kind, settings...)
	if localErr == nil {
		return server, nil
	}
	server, dockerErr := startContainer(ctx, kind, false, settings...)
	if dockerErr == nil {
		return server, nil
	}
	return nil, fmt.Errorf("no %s: no %s; local: %w; Docker: %w", kind, dsnVariable(kind), localErr, dockerErr)
}

func dsnVariable(kind string) string { return "DBLOCK_TEST_" + strings.ToUpper(kind) + "_DSN" }

// required reports whether a test that asks for a missing kind must fail: the kind was requested by
// name, or its DSN does not answer.
func required(kind string) bool {
	return named(kind) || len(list("DBLOCK_TEST_ONLY")) == 0 && os.Getenv(dsnVariable(kind)) != ""
}

func named(kind string) bool {
	if only := list("DBLOCK_TEST_ONLY"); len(only) > 0 {
		return slices.Contains(only, kind)
	}
	return slices.Contains(list("DBLOCK_TEST_REQUIRE"), kind)
}

func list(variable string) []string {
	return strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ',' || r == ' ' })
}

// ready waits until the server answers, until ctx ends, or until the server has ended. ended is nil
// for a server that was not started here.
func ready(ctx context.Context, kind, dsn string, ended <-chan struct{}) error {
	db, err := open(kind, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	again := time.NewTicker(25 * time.Millisecond)
	defer again.Stop()
	for {
		ping, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := db.PingContext(ping)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ended:
			return errors.New("the server ended while it started")
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", err)
		}
	}
}

// Run runs the tests of a package: func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }.
// Afterwards it stops the servers that they started, says which kinds were left out, and fails
// where goroutines have leaked.
func Run(m *testing.M) int {
	code := m.Run()
	report()
	StopAll()
	if code != 0 {
		return code
	}
	if err := leak.Find(nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func report() {
	servers.Lock()
	defer servers.Unlock()
	for _, kind := range Kinds {
		if err := servers.m[kind].err; err != nil && !errors.Is(err, errLeftOut) {
			tell(fmt.Sprintf("dblock: left out %s; scripts/test runs everything. %v\n", kind, err))
		}
	}
}

// tell writes to the standard error of go test. go test shows no output of a test binary that
// passes, and silence would look like success on every engine.
func tell(text string) {
	if runtime.GOOS == "linux" {
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", os.Getppid()), os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			defer f.Close()
			if _, err := f.WriteString(text); err == nil {
				return
			}
		}
	}
	fmt.Fprint(os.Stderr, text)
}
