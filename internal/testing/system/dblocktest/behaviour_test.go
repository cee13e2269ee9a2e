// Package dblocktest runs the behaviour suite on the tables in memory of package dblocktest. The
// suite sees them in a file of SQLite. The test is a white-box test and stays in its package, which
// may not import a driver, so an overlay adds the driver to it here.
package dblocktest

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // so that go mod tidy keeps it

	"github.com/dblock-go/dblock/internal/testing/require"
)

const (
	tested   = "github.com/dblock-go/dblock/dblocktest"
	anImport = "package dblocktest\n\nimport _ \"modernc.org/sqlite\"\n"
)

// TestBehaviour passes -run on: go test -run 'TestBehaviour/memory/an_idle' runs these sentences.
func TestBehaviour(t *testing.T) {
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", tested).Output()
	require.NoError(t, err)
	driver, overlay := filepath.Join(t.TempDir(), "driver_test.go"), filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(strings.TrimSpace(string(folder)), "driver_test.go"): driver},
	})
	require.NoError(t, err)
	for file, content := range map[string]string{driver: anImport, overlay: string(replace)} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	run := flag.Lookup("test.run").Value.String()
	if !strings.Contains(run, "TestBehaviour") {
		run = "TestBehaviour"
	}
	ctx := t.Context()
	args := []string{"test", "-count=1", "-v", "-overlay", overlay, "-run", run}
	if end, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
		args = append(args, "-timeout", time.Until(end).String())
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" && setting.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	out, err := exec.CommandContext(ctx, "go", append(args, tested)...).CombinedOutput()
	said := string(out)
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, said)
	case !strings.Contains(said, "--- PASS: TestBehaviour/memory/"):
		t.Errorf("nothing ran:\n%s", said)
	case testing.Verbose():
		t.Log(said)
	}
}
