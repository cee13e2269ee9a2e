package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

var (
	block = regexp.MustCompile("(?ms)^ *```sh\n.*?^ *```")
	code  = regexp.MustCompile(`(?m)^\s*[^/\s].*$`)
	// shown is a command line in backquotes, in a block of shell commands, or in the example of a
	// comment.
	shown = regexp.MustCompile("(?m)(?:`|^//\t+)dblock ([a-z-][^`\n]*)")
)

// TestPagesShowCommandsThatExist holds the command lines of pages and comments to the commands and
// their flags.
func TestPagesShowCommandsThatExist(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if kind := filepath.Ext(path); err != nil || kind != ".md" && kind != ".txt" && kind != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if filepath.Ext(path) == ".go" {
			text = code.ReplaceAll(text, nil)
		}
		page := block.ReplaceAllStringFunc(string(text), func(lines string) string {
			return "\n" + strings.ReplaceAll(lines, "\n", "\n//\t") + "\n"
		})
		for _, m := range shown.FindAllStringSubmatch(page, -1) {
			found++
			assert.Equal(t, mistake(m[1]), "", path, "dblock", m[1])
		}
		return err
	})
	require.NoError(t, err)
	if found < 20 {
		t.Errorf("all pages have %d command lines", found)
	}
}

func TestAMistakenCommandLineIsFound(t *testing.T) {
	for line, want := range map[string]string{
		"ls --idel":                      "--idel",
		"ls orders/ --contended":         "",
		"foo":                            "foo",
		"migrate upp":                    "upp",
		"migrate sql --engine postgres":  "",
		"run backup -- pg_dump --orders": "",
		"run backup --wiat 1s -- true":   "--wiat",
	} {
		assert.Equal(t, mistake(line), want, line)
	}
}

// mistake returns the first part of a command line that is no command and no flag; "": all are.
func mistake(line string) string {
	line, _, _ = strings.Cut(line, " -- ")
	c := root(new(options))
	c.InitDefaultVersionFlag()
	for _, word := range strings.Fields(line) {
		name, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(name, "-") {
			c.InitDefaultHelpFlag()
			flags := c.Flags()
			c.InheritedFlags() // adds those of the commands above
			short := len(name) == 2 && flags.ShorthandLookup(name[1:]) != nil
			if !short && flags.Lookup(strings.TrimLeft(name, "-")) == nil {
				return name
			}
			continue
		}
		if !c.HasSubCommands() {
			continue
		}
		next, _, err := c.Find([]string{word})
		if err != nil || next == c {
			return word
		}
		c = next
	}
	return ""
}
