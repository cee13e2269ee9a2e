package tfstate

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// programs needs tofu or terraform. DBLOCK_TEST_REQUIRE=terraform makes it fail without.
func programs(t *testing.T, w world) {
	var programs []string
	for _, name := range []string{"tofu", "terraform"} {
		if program, err := exec.LookPath(name); err == nil {
			programs = append(programs, program)
		}
	}
	if len(programs) == 0 {
		if slices.Contains(strings.Split(os.Getenv("DBLOCK_TEST_REQUIRE"), ","), "terraform") {
			t.Fatal("neither tofu nor terraform is in PATH")
		}
		t.Skip("the protocol's own programs, tofu and terraform, are not in PATH")
	}
	for _, program := range programs {
		for way, lock := range map[string]string{
			"": `lock_address = "URL"
    unlock_address = "URL"`,
			"-as-at-gitlab": `lock_address = "URL/lock"
    unlock_address = "URL/lock"
    lock_method = "POST"
    unlock_method = "DELETE"`,
		} {
			name := filepath.Base(program) + way
			t.Run(name, func(t *testing.T) { w.T = t; applies(w.server(), program, "/"+name, lock) })
		}
	}
}

// applies runs a program through a first apply, one behind another run's lock, and force-unlock.
func applies(s server, program, path, lock string) {
	folder := s.TempDir()
	config := `terraform {
  backend "http" {
    address = "URL"
    LOCK
    retry_max = 0
  }
}
resource "terraform_data" "a" { input = "of the configuration" }
`
	require.NoError(s, os.WriteFile(filepath.Join(folder, "main.tf"),
		[]byte(strings.ReplaceAll(strings.Replace(config, "LOCK", lock, 1), "URL", s.url+path)), 0o600))
	run := func(works bool, arguments ...string) string {
		s.Helper()
		c := exec.CommandContext(s.Context(), program, arguments...)
		c.Dir = folder
		c.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
		said, err := c.CombinedOutput()
		if (err == nil) != works {
			s.Errorf("%s %v: %v\n%s", program, arguments, err, said)
		}
		return string(said)
	}
	apply := []string{"apply", "-auto-approve", "-input=false", "-no-color"}
	run(true, "init", "-input=false", "-no-color")
	run(true, apply...)
	if state := s.says(http.StatusOK, "GET", path, ""); !strings.Contains(state, "of the configuration") {
		s.Errorf("the state is %s", state)
	}
	s.says(http.StatusOK, "LOCK", path, lockInfo("11111111-2222-3333-4444-555555555555"))
	if said := run(false, apply...); !strings.Contains(said, "11111111-2222-3333-4444-555555555555") {
		s.Errorf("it does not name the holder:\n%s", said)
	}
	run(true, "force-unlock", "-force", "11111111-2222-3333-4444-555555555555")
	run(true, append([]string{"destroy"}, apply[1:]...)...)
	left, err := s.inspector.Lock(s.Context(), Name(path))
	if assert.NoError(s, err) && len(left.Holders) > 0 {
		s.Errorf("it is still locked: %+v", left.Holders)
	}
}
