package dbtest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The helper says where a container is that never answers.
func TestAContainerThatDoesNotAnswerIsRemoved(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // stands for a daemon
	require.NoError(t, err)
	defer l.Close()
	t.Setenv("DOCKER_HOST", "tcp://"+l.Addr().String())
	defer func(before []string) { helper = before }(helper)
	removed := filepath.Join(t.TempDir(), "removed")
	helper = []string{"sh", "-c", `echo "postgres:17 postgres://postgres@127.0.0.1:1/postgres"; cat; echo >"$0"`,
		removed}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := startContainer(ctx, KindPostgres, false); err == nil || !strings.Contains(err.Error(), "postgres:17") {
		t.Errorf("a server that never answers: %v", err)
	}
	assert.NoError(t, assert.ErrOf(os.Stat(removed)), "its helper was not told to end")
}

func TestAHelperThatFailsIsReported(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	t.Setenv("DOCKER_HOST", "tcp://"+l.Addr().String())
	defer func(before []string) { helper = before }(helper)
	helper = []string{"sh", "-c", "echo no such image >&2; exit 1"}
	if _, err := startContainer(t.Context(), KindPostgres, false); err == nil || !strings.Contains(err.Error(),
		"no such image") {
		t.Errorf("a helper that fails: %v", err)
	}
}

func TestWithoutADaemonNoHelperRuns(t *testing.T) {
	defer func(before []string) { helper = before }(helper)
	helper = []string{"/nowhere"}
	for _, host := range []string{"tcp://127.0.0.1:1", "unix:///nowhere/docker.sock"} {
		t.Setenv("DOCKER_HOST", host)
		if _, err := startContainer(t.Context(), KindPostgres, false); err == nil || err.Error() != "no daemon" {
			t.Errorf("%s: %v", host, err)
		}
	}
}
