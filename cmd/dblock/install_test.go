package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// A replace in go.mod, a file that the module's archive lacks, or an import of what it cannot have,
// keeps others from installing the command, and nobody here would notice.
func TestAStrangerCanInstallIt(t *testing.T) {
	t.Parallel()
	proxy := t.TempDir()
	publish(t, proxy, "github.com/dblock-go/dblock", filepath.Join("..", ".."))
	publish(t, proxy, "github.com/dblock-go/dblock/cmd/dblock", ".")
	mine := goEnv(t, "GOMODCACHE")
	cache := t.TempDir()
	for _, folder := range []struct{ path, but string }{
		{".", "cache github.com"}, {"github.com", "dblock-go"}, {"cache/download", "github.com"},
		{"cache/download/github.com", "dblock-go"},
	} {
		symlinks(t, filepath.Join(mine, folder.path), filepath.Join(cache, folder.path), strings.Fields(folder.but))
	}
	// -n: everything but the compiler and the linker, which do what they do for these tests.
	install := exec.CommandContext(t.Context(), "go", "install", "-n", "github.com/dblock-go/dblock/cmd/dblock@"+
		published)
	install.Dir = t.TempDir()
	install.Env = append(os.Environ(), "GOMODCACHE="+cache, "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOWORK=",
		"GOBIN="+t.TempDir(),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(mine, "cache", "download")+","+goEnv(t, "GOPROXY"))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, last(string(out), 20))
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(value))
}

// symlinks makes a folder with links to all that another one has, but for some. To unpack all
// modules once more would take as long as the other tests together.
func symlinks(t *testing.T, from, to string, but []string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o755))
	entries, _ := os.ReadDir(from) // a fresh cache lacks some
	for _, e := range entries {
		if slices.Contains(but, e.Name()) {
			continue
		}
		require.NoError(t, os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
	}
}

// published is the version of the library in go.mod.
const published = "v0.0.0"

// publish writes a module into a folder that the go command takes for a proxy.
func publish(t *testing.T, proxy, path, folder string) {
	t.Helper()
	at := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	require.NoError(t, os.MkdirAll(at, 0o755))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(text), 0o644))
	}
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	require.NoError(t, err)
	write("list", published+"\n")
	write(published+".info", fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, published))
	write(published+".mod", string(mod))
	archive, err := os.Create(filepath.Join(at, published+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromDir(archive, module.Version{Path: path, Version: published}, folder))
	require.NoError(t, archive.Close())
}

// last are the last lines of a text.
func last(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
