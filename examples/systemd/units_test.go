// Package systemd has units for hosts that share a lock.
package systemd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// unit returns the settings of a file. Each has one value.
func unit(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	settings := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), "="); is && !strings.HasPrefix(key, "#") {
			settings[key] = value
		}
	}
	return settings
}

func flag(t *testing.T, command, name string) string {
	t.Helper()
	match := regexp.MustCompile(name + ` ("[^"]*"|\S+)`).FindStringSubmatch(command)
	if match == nil {
		t.Fatalf("no %s in %s", name, command)
	}
	return strings.Trim(match[1], `"`)
}

func TestUnitsKeepTheFolderAndLetTheCommandStop(t *testing.T) {
	for _, file := range []string{"indexer.service", "nightly.service"} {
		u := unit(t, file)
		grace, err := time.ParseDuration(flag(t, u["ExecStart"], "--grace"))
		require.NoError(t, err)
		stop, err := time.ParseDuration(u["TimeoutStopSec"] + "s")
		require.NoError(t, err)
		if stop <= grace {
			t.Errorf("%s: TimeoutStopSec of %v is no more than --grace %v", file, stop, grace)
		}
		if u["RuntimeDirectoryPreserve"] != "yes" || u["Environment"] != "TMPDIR=%t/"+u["RuntimeDirectory"] {
			t.Errorf("%s: the next start does not find the folder", file)
		}
		require.Equal(t, u["KillMode"], "mixed")
	}
}

func TestTheTimerHasTheTimeOfTheSlot(t *testing.T) {
	command, at := unit(t, "nightly.service")["ExecStart"], unit(t, "nightly.timer")["OnCalendar"]
	require.Equal(t, flag(t, command, "--slot-of"), "0 3 * * *")
	require.Equal(t, at, "*-*-* 03:00:00 "+flag(t, command, "--tz"))
}

func TestSystemdTakesTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here: install systemd")
	}
	// It looks for the programs, too.
	folder := t.TempDir()
	var files []string
	for _, file := range []string{"indexer.service", "nightly.service", "nightly.timer"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/dblock"), []byte("/bin/sh"))
		files = append(files, filepath.Join(folder, file))
		require.NoError(t, os.WriteFile(files[len(files)-1], text, 0o600))
	}
	verify := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, files...)...)
	out, err := verify.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte(folder)) {
		t.Errorf("%v: %s", err, out)
	}
}
