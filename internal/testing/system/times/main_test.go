package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// TestARunIsMeasuredAndPrinted has a shell in the place of a test binary, which fails. It has no
// profile.
func TestARunIsMeasuredAndPrinted(t *testing.T) {
	top, folder := t.TempDir(), t.TempDir()
	write := func(file, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
	}
	write("top", top+"\n")
	require.NoError(t, os.MkdirAll(filepath.Join(top, "internal/x"), 0o700))
	t.Chdir(filepath.Join(top, "internal/x"))
	var exit *exec.ExitError
	err := run(folder, []string{"/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3"})
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("%v, want exit status 3", err)
	}
	write("server_mysql.json", `{"Package": "mysql", "User": 2000000000, "Kernel": 1000000000}`)
	write("whole.json", `{"Wall": 10000000000, "CPU": 9000000000}`)
	var out strings.Builder
	require.NoError(t, show(&out, folder))
	for _, says := range []string{"processor time: 9.0s of ", "     3.0  mysql's server (kernel 1.0)\n",
		"  compiler, linker, go, downloads, unpacking\n", "  ./internal/x (kernel "} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("%q is not in\n%s", says, out.String())
		}
	}
}
