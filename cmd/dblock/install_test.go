package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// A replace in go.mod, a file that the module's archive lacks, or an import of what it cannot have,
// keeps others from installing the command, and nobody here would notice.
func TestAStrangerCanInstallIt(t *testing.T) {
	proxy, cache := t.TempDir(), t.TempDir()
	publish(t, proxy, "github.com/dblock-go/dblock", filepath.Join("..", ".."))
	publish(t, proxy, "github.com/dblock-go/dblock/cmd/dblock", ".")
	downloaded, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	// -n: everything but the compiler and the linker, which do what they do for these tests.
	install := exec.CommandContext(t.Context(), "go", "install", "-n", "github.com/dblock-go/dblock/cmd/dblock@"+version)
	install.Dir = t.TempDir()
	install.Env = append(os.Environ(), "GOMODCACHE="+cache, "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOWORK=", "GOBIN="+t.TempDir(),
		fmt.Sprintf("GOPROXY=file://%s,file://%s", proxy, filepath.Join(strings.TrimSpace(string(downloaded)), "cache", "download")))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, last(string(out), 20))
	}
}

// version is that of the library in go.mod.
const version = "v0.0.0"

// publish writes a module into a folder that the go command takes for a proxy.
func publish(t *testing.T, proxy, path, folder string) {
	t.Helper()
	at := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write("list", version+"\n")
	write(version+".info", fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version))
	write(version+".mod", string(mod))
	archive, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromDir(archive, module.Version{Path: path, Version: version}, folder); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
}

// last are the last lines of a text.
func last(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
