package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// The three images, as a Docker daemon is asked for them. The daemon is not real: its containers
// are a database that runs here anyway, or nothing that answers.
func TestDockerIsAskedForTheRightServers(t *testing.T) {
	for kind, want := range map[string]struct{ image, port, env, dsn string }{
		dbtest.KindPostgres: {"postgres:17", "5432/tcp", "POSTGRES_PASSWORD=dblock",
			"postgres://postgres:dblock@127.0.0.1:1/postgres?sslmode=disable"},
		dbtest.KindMySQL: {"mysql:8.4", "3306/tcp", "MYSQL_ROOT_PASSWORD=dblock",
			"root:dblock@tcp(127.0.0.1:1)/test"},
		dbtest.KindMariaDB: {"mariadb:11.4", "3306/tcp", "MARIADB_ROOT_PASSWORD=dblock",
			"root:dblock@tcp(127.0.0.1:1)/test"},
	} {
		t.Run(kind, func(t *testing.T) {
			d := newFakeDaemon(t, "1")
			var out strings.Builder
			require.NoError(t, run(strings.NewReader(""), &out, false, []string{kind, "--a-setting"}))
			assert.Equal(t, out.String(), want.image+" "+want.dsn+"\n", "said")
			c := d.created
			if c.Image != want.image || !slices.Contains(c.Env, want.env) ||
				len(c.HostConfig.PortBindings[want.port]) != 1 {
				t.Errorf("asked for %+v", c)
			}
			assert.Equal(t, c.Cmd[len(c.Cmd)-1], "--a-setting", "the command is", c.Cmd)
			if b := c.HostConfig.PortBindings[want.port][0]; b.HostIp != "127.0.0.1" || b.HostPort != "" {
				t.Errorf("published at %+v", b)
			}
			if !c.HostConfig.AutoRemove {
				t.Error("the container would outlive its end")
			}
			if log := d.calls(); !slices.Contains(log, "POST /images/create") ||
				log[len(log)-1] != "DELETE /containers/c1" {
				t.Errorf("the image was not pulled, or the container was not removed at the end of the input: %v", log)
			}
		})
	}
}

func TestADaemonThatRefusesIsReported(t *testing.T) {
	newFakeDaemon(t, "1")
	var out strings.Builder
	require.NoError(t, run(strings.NewReader("dance\n"), &out, false, []string{dbtest.KindPostgres}))
	if !strings.HasSuffix(out.String(), "\nwhat is \"dance\"?\n") {
		t.Errorf("said %q", out.String())
	}
	for _, args := range [][]string{nil, {"sqlite"}} {
		assert.Error(t, run(strings.NewReader(""), &out, false, args), "started", args)
	}
}

// Package dbtest finds no binaries and runs this program, as its users do.
func TestAContainerIsKilledStartedPausedAndRemoved(t *testing.T) {
	addr := dbtest.OwnPostgres(t).Empty(t).Addr(t) // stands for the container
	_, port, _ := net.SplitHostPort(addr)
	t.Setenv("DBLOCK_TEST_PG_BIN", t.TempDir())
	d := newFakeDaemon(t, port)
	t.Run("by package dbtest", func(t *testing.T) {
		server := dbtest.OwnPostgres(t)
		if server.DSN != "postgres://postgres:dblock@127.0.0.1:"+port+"/postgres?sslmode=disable" ||
			server.From != "Docker, postgres:17" {
			t.Errorf("%+v", server)
		}
		if c := d.created.HostConfig; c.AutoRemove || c.PortBindings["5432/tcp"][0].HostPort == "" {
			t.Errorf("it would not come back, or elsewhere: %+v", c)
		}
		server.Kill()
		server.Start()
		server.Pause()
		server.Resume()
	})
	want := []string{"POST /containers/c1/kill", "POST /containers/c1/start", "POST /containers/c1/pause",
		"POST /containers/c1/unpause", "DELETE /containers/c1"}
	if log := d.calls(); len(log) < len(want) || !slices.Equal(log[len(log)-len(want):], want) {
		t.Errorf("asked for %v", log)
	}
}

func TestADaemonThatDoesNotAnswerIsPassedOver(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	for name, host := range map[string]string{
		"silent": "tcp://" + silent.Addr().String(), "nobody": "tcp://127.0.0.1:1",
		"no socket": "unix:///nowhere/docker.sock",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", host)
			if _, err := daemon(t.Context()); err == nil { // it returns: the silent one would keep it for ever
				t.Error("it answered")
			}
		})
	}
}

// fakeDaemon answers what dockertest asks of a Docker daemon, for one container.
type fakeDaemon struct {
	port    string
	mu      sync.Mutex
	log     []string // what was asked to be changed
	created struct {
		Image      string
		Env, Cmd   []string
		HostConfig struct {
			AutoRemove   bool
			PortBindings map[string][]struct{ HostIp, HostPort string }
		}
	}
}

func newFakeDaemon(t *testing.T, port string) *fakeDaemon {
	t.Helper()
	d := &fakeDaemon{port: port}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_HOST", "tcp://"+server.Listener.Addr().String())
	t.Setenv("DOCKER_CERT_PATH", "")
	t.Setenv("DOCKER_MACHINE_NAME", "")
	return d
}

func (d *fakeDaemon) calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

func (d *fakeDaemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	call := r.Method + " " + path.Clean(r.URL.Path)
	if r.Method != http.MethodGet {
		d.log = append(d.log, call)
	}
	switch {
	case call == "GET /_ping":
		_, _ = w.Write([]byte("OK"))
	case strings.HasPrefix(call, "GET /images/"):
		http.Error(w, `{"message":"no such image"}`, http.StatusNotFound)
	case call == "POST /images/create":
		_, _ = w.Write([]byte(`{"status":"pulled"}`))
	case call == "POST /containers/create":
		if err := json.NewDecoder(r.Body).Decode(&d.created); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"Id":"c1"}`))
	case call == "GET /containers/c1/json":
		ports := make(map[string]any)
		for port := range d.created.HostConfig.PortBindings {
			ports[port] = []map[string]string{{"HostIp": "127.0.0.1", "HostPort": d.port}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": "c1", "NetworkSettings": map[string]any{"Ports": ports}})
	case strings.HasPrefix(call, "POST /containers/c1/"), call == "DELETE /containers/c1":
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, `{"message":"`+call+`"}`, http.StatusNotImplemented)
	}
}
