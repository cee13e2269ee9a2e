package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// macOS has bash 3.2 at /bin/bash, and a newer one only in PATH.
func TestScriptsRunTheBashInPATH(t *testing.T) {
	var scripts []string
	for _, pattern := range []string{".ci/*", "scripts/*", "bench/*", "bench/*/run"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		scripts = append(scripts, found...)
	}
	some := false
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // a folder
		}
		some = some || strings.HasPrefix(string(text), "#!/usr/bin/env bash\n")
		if strings.HasPrefix(string(text), "#!/bin/bash") {
			t.Errorf("%s: want #!/usr/bin/env bash", path)
		}
	}
	if !some {
		t.Error("no script was found")
	}
}

func TestScriptsSayWhichBashTheyNeed(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here")
	}
	source := func(before string) string {
		bash := exec.CommandContext(t.Context(), "bash", "-c", before+". scripts/servers && echo served")
		out, _ := bash.CombinedOutput()
		return string(out)
	}
	old := strings.Contains(source(""), "brew install bash") // this machine's own
	for version, refused := range map[string]bool{
		"3.2.57(1)-release": true, "4.3.48(1)-release": true, "4.4.0(1)-release": false, "5.2.15(1)-release": false,
	} {
		said := source("BASH_VERSION='" + version + "'; ")
		if refused && !(strings.Contains(said, version) && strings.Contains(said, "brew install bash")) ||
			!refused && !old && said != "served\n" {
			t.Errorf("bash %s: %s", version, said)
		}
	}
}
