package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestReadmeHasEveryCommandAndTheOptionsOfRun(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text, o := strings.ReplaceAll(string(readme), "`dblock ", "`"), new(options)
	for _, c := range root(o).Commands() {
		if slices.Contains([]string{"help", "completion"}, c.Name()) { // cobra's own
			continue
		}
		if !regexp.MustCompile("`" + c.Name() + "[` ]").MatchString(text) {
			t.Errorf("README has no command %s", c.Name())
		}
	}
	flags := execute(o).Flags().FlagUsages()
	for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(flags, -1) {
		if flag != "--exit-code-if-not-acquired" && !strings.Contains(text, flag) { // README has its short form
			t.Errorf("README has no option %s", flag)
		}
	}
}
