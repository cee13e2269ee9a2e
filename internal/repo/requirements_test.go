package repo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// What this module may require. Everything else that tests, adapters and programs need is required
// by modules of their own.
var required = []string{
	"github.com/go-sql-driver/mysql",
	"github.com/jackc/pgx/v5",
	"github.com/pressly/goose/v3",
	"golang.org/x/sys",
}

func TestTheModuleRequiresFourOthers(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	require.NoError(t, json.Unmarshal(goCommand(t, ".", "mod", "edit", "-json"), &mod))
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(direct)), required) {
		t.Errorf("go.mod requires %q: want %q", direct, required)
	}
	if len(mod.Replace) > 0 {
		t.Error("go.mod has replace, with which go install …@latest refuses it")
	}
}

// suite are names of what only the tests of dblock need.
var suite = regexp.MustCompile("docker|runc|sqlite|modernc|porcupine|goleak")

// A user's scanners read go.sum. It also has what the tests of an imported package import, whoever
// wrote it: so what tests import is the user's as well.
func TestTheSuiteIsNotInTheGoSumOfAUser(t *testing.T) {
	for _, c := range []struct {
		imports []string
		most    int // lines
	}{
		{[]string{module, module + "/postgres"}, 45},
		{[]string{module, module + "/mysql"}, 30},
		{[]string{module, module + "/sqlite"}, 20},
	} {
		sum := goSum(t, c.imports...)
		if len(sum) > c.most {
			t.Errorf("a user of %q has %d lines in go.sum: want at most %d", c.imports, len(sum), c.most)
		}
		for _, line := range sum {
			if suite.MatchString(line) {
				t.Errorf("a user of %q has %s", c.imports, line)
			}
		}
	}
}

// Who migrates has goose. The tests of goose itself import modernc.org/sqlite, which puts 18 lines
// into the go.sum of whoever imports goose, and nothing into the build.
func TestAUserWhoMigratesHasWhatGooseHas(t *testing.T) {
	with := goSum(t, module, module+"/postgres", module+"/migrate")
	alone := goSum(t, "github.com/jackc/pgx/v5", "github.com/pressly/goose/v3")
	ours := slices.DeleteFunc(slices.Clone(with), func(line string) bool { return slices.Contains(alone, line) })
	t.Logf("%d lines, %d of them without dblock", len(with), len(alone))
	if len(ours) > 4 { // the driver of MySQL: a test of package postgres imports internal/testing/dbtest
		t.Errorf("dblock adds %d lines to those of pgx and goose: %q", len(ours), ours)
	}
	for _, line := range ours {
		if suite.MatchString(line) {
			t.Errorf("dblock adds %s", line)
		}
	}
}

// goSum is the go.sum of a module that imports these packages, line by line.
func goSum(t *testing.T, imports ...string) []string {
	t.Helper()
	root, err := os.Getwd()
	require.NoError(t, err)
	sums, err := os.ReadFile("go.sum") // so that nobody need be asked for them
	require.NoError(t, err)
	mod := goCommand(t, ".", "mod", "edit", "-print") // requirements of the same versions
	_, requirements, _ := bytes.Cut(mod, []byte("\nrequire"))
	dir := t.TempDir()
	var program strings.Builder
	for _, pkg := range imports {
		fmt.Fprintf(&program, "import _ %q\n", pkg)
	}
	for file, content := range map[string]string{
		"go.sum":  string(sums),
		"main.go": "package main\n\n" + program.String() + "\nfunc main() {}\n",
		"go.mod": "module example.com/user\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module +
			" => " + root +
			"\n\nrequire" + string(requirements),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
	goCommand(t, dir, "mod", "tidy")
	sums, err = os.ReadFile(filepath.Join(dir, "go.sum"))
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(sums)), "\n")
}

// goCommand runs the go command outside of the workspace, as a user's machine does.
func goCommand(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v (it needs the modules of go.sum: from the cache or a proxy)\n%s", strings.Join(args, " "),
			err, &said)
	}
	return out
}
