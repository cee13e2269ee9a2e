package dbtest

import (
	"context"
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
	"time"
)

// The three images, as a Docker daemon is asked for them. The daemon is not real: its containers
// are a database that runs here anyway, or nothing that answers.
func TestDockerIsAskedForTheRightServers(t *testing.T) {
	for kind, want := range map[string]struct{ image, port, env string }{
		KindPostgres: {"postgres:17", "5432/tcp", "POSTGRES_PASSWORD=dblock"},
		KindMySQL:    {"mysql:8.4", "3306/tcp", "MYSQL_ROOT_PASSWORD=dblock"},
		KindMariaDB:  {"mariadb:11.4", "3306/tcp", "MARIADB_ROOT_PASSWORD=dblock"},
	} {
		t.Run(kind, func(t *testing.T) {
			d := newFakeDaemon(t, "1") // nobody listens on port 1
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := startContainer(ctx, kind, false); err == nil || !strings.Contains(err.Error(), want.image) {
				t.Fatalf("a server that never answers: %v", err)
			}
			c := d.created
			if c.Image != want.image || !slices.Contains(c.Env, want.env) || len(c.HostConfig.PortBindings[want.port]) != 1 {
				t.Errorf("asked for %+v", c)
			}
			if b := c.HostConfig.PortBindings[want.port][0]; b.HostIp != "127.0.0.1" || b.HostPort != "" {
				t.Errorf("published at %+v", b)
			}
			if !c.HostConfig.AutoRemove {
				t.Error("the container would outlive its end")
			}
			if log := d.calls(); !slices.Contains(log, "POST /images/create") || log[len(log)-1] != "DELETE /containers/c1" {
				t.Errorf("the image was not pulled, or the container that never answered was not removed: %v", log)
			}
		})
	}
}

func TestAContainerIsKilledStartedPausedAndRemoved(t *testing.T) {
	real, err := startLocal(t.Context(), KindPostgres)
	if err != nil {
		if required(KindPostgres) && os.Getenv(dsnVariable(KindPostgres)) == "" {
			t.Fatal(err)
		}
		t.Skip("no local PostgreSQL to stand for a container: ", err)
	}
	defer func() {
		if err := real.remove(); err != nil {
			t.Error(err)
		}
	}()
	addr, err := address(KindPostgres, real.DSN)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	d := newFakeDaemon(t, port)
	server, err := startContainer(t.Context(), KindPostgres, true)
	if err != nil {
		t.Fatal(err)
	}
	if server.DSN != "postgres://postgres:dblock@127.0.0.1:"+port+"/postgres?sslmode=disable" || server.From != "Docker, postgres:17" {
		t.Errorf("%+v", server)
	}
	if c := d.created.HostConfig; c.AutoRemove || c.PortBindings["5432/tcp"][0].HostPort == "" {
		t.Errorf("it would not come back, or elsewhere: %+v", c)
	}
	server.tb = t
	server.Kill()
	server.Start()
	server.Pause()
	server.Resume()
	if err := server.remove(); err != nil {
		t.Error(err)
	}
	want := []string{"POST /containers/c1/kill", "POST /containers/c1/start", "POST /containers/c1/pause", "POST /containers/c1/unpause", "DELETE /containers/c1"}
	if log := d.calls(); len(log) < len(want) || !slices.Equal(log[len(log)-len(want):], want) {
		t.Errorf("asked for %v", log)
	}
}

func TestADaemonThatDoesNotAnswerIsPassedOver(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, host := range map[string]string{
		"silent": "tcp://" + silent.Addr().String(), "nobody": "tcp://127.0.0.1:1", "no socket": "unix:///nowhere/docker.sock",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", host)
			start := time.Now()
			if _, err := daemon(t.Context()); err == nil {
				t.Error("it answered")
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("it took %v to pass over", took)
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
