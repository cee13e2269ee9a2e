package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mistaken are arguments that no flag of a type takes.
var mistaken = map[string][]string{
	"bool": {"maybe"}, "duration": {"soon", "-1s", "10"}, "uint": {"-1", "many"}, "uint8": {"-1", "256"},
	"int": {"few"}, "int64Slice": {"1,x"}, "stringToString": {"novalue"},
}

// enough are arguments that each command takes.
var enough = map[string]string{
	"ls": "", "show": "n", "why": "n", "sessions": "", "jobs": "", "runs": "n", "events": "", "key": "n",
	"run": "n -- true", "hold": "n --for 1h", "renew": "n 1 --for 1h", "release": "n 1",
	"break": "n --token 1 --reason x --yes", "ask": "n --reason x", "reap": "", "doctor": "", "ui": "", "version": "",
	"help": "", "migrate up": "", "migrate status": "", "migrate down": "--yes",
	"migrate dump": "FOLDER --engine postgres", "migrate sql": "--engine postgres",
	"completion bash": "", "completion fish": "", "completion powershell": "", "completion zsh": "",
}

// combined are arguments that are wrong together, or in what they say.
var combined = []string{
	"", "lss", "migrate", "migrate upp", "completion", "completion tcsh", "help lss", "help migrate upp", "ls a b",
	"show", "show a b", "show EMPTY", "why", "why EMPTY", "sessions a", "jobs a", "runs", "runs EMPTY", "events a b",
	"events EMPTY", "key", "key EMPTY", "key a EMPTY", "reap a", "doctor a", "ui a", "version a",
	"ui --listen 0.0.0.0:0", "ls --local --dsn sqlite://x", "ls --local --schema x", "ls --dsn oracle://x/y",
	"ls --dsn postgres://a:b@c/d", "ls --dsn sqlite://", "ls --dsn mysql://x:80a/b", "ls --dsn x",
	"ls --native --all", "ls --native --contended", "ls --native --host x", "ls --native --older 1s",
	"ls --native --after x", "hold", "hold n", "hold n --for 1ms", "hold EMPTY --for 1h", "hold n m --for 1h",
	"hold n --for 1h -n -w 1s", "renew n", "renew n x --for 1h", "renew n 0 --for 1h", "renew n 1",
	"renew EMPTY 1 --for 1h", "release n", "release n -- -1", "release EMPTY 1", "break n --reason x",
	"break n --token 1", "break n --token 0 --reason x --yes", "break EMPTY --token 1 --reason x", "ask n",
	"ask EMPTY --reason x", "ask n --reason LONG", "break n --token 1 --reason LONG --yes", "migrate up a",
	"migrate status a", "migrate down", "migrate dump", "migrate dump FOLDER", "migrate sql",
	"migrate dump FOLDER --engine oracle", "migrate sql --engine oracle", "migrate up --set lock", "run", "run n",
	"run n --", "run -- true", "run EMPTY -- true", "run LONG -- true", "run --no-wait --wait 1s n -- true",
	"run --shared --permits 1/2 n -- true", "run --permits one n -- true", "run --permits 7/5 n -- true",
	"run --permits 0/5 n -- true", "run --permits EMPTY n -- true", "run --ttl 10ms n -- true",
	"run --ttl 25h n -- true", "run --ttl 10s --grace 6s n -- true", "run --lease 1s n -- true",
	"run --lease 0s n -- true", "run --lease 1h n m -- true", "run --min-hold 1000000h n -- true",
	"run --min-hold 1s --shared n -- true", "run --owner EMPTY n -- true", "run --owner LONG n -- true",
	"run --metadata k=LONG n -- true", "run --once-per 1us n -- true", "run --once-per 0s n -- true",
	"run --once-per 1h --slot-of ALWAYS n -- true", "run --once-per 1h n m -- true",
	"run --once-per 1h --no-wait n -- true", "run --once-per 1h --late 1h n -- true", "run --slot-of dawn n -- true",
	"run --slot-of EMPTY n -- true", "run --slot-of ALWAYS --tz Mars n -- true",
	"run --slot-of ALWAYS --tz EMPTY n -- true", "run --tz UTC n -- true",
	"run --slot-of ALWAYS --late 0s n -- true", "run --slot-of @every n -- true", "run --retry-failed 1 n -- true",
	"run --once-per 1h --retry-failed -1 n -- true", "run --once-per 1h --retry-backoff 1s n -- true",
	"renew n 1 --for 1ms", "ui --listen nowhere",
}

// The database is missing: who looked for it before the arguments would end with another status.
func TestWrongArgumentsAreAStatusOfTheirOwn(t *testing.T) {
	in := shell{environment: []string{"DBLOCK_DSN=sqlite://" + filepath.Join(t.TempDir(), "missing")}}
	words := strings.NewReplacer("EMPTY", "\x00", "LONG", strings.Repeat("x", 5000), "FOLDER", t.TempDir(),
		"ALWAYS", "@hourly")
	check := func(line string) {
		arguments := strings.Fields(words.Replace(line))
		for i, a := range arguments {
			arguments[i] = strings.ReplaceAll(a, "\x00", "")
		}
		s := in.run(t, arguments...)
		if s.status != exitUsage || s.err == "" || s.out != "" {
			t.Errorf("dblock %s: status %d, out %q, err %q", line, s.status, s.out, s.err)
		}
		first, _, _ := strings.Cut(s.err, "\n")
		t.Logf("%d  dblock %s  %s", s.status, line, first)
	}
	for _, line := range combined {
		check(line)
	}
	eachCommand(t, root(new(options)), func(path string, c *cobra.Command) {
		line, known := enough[path]
		if !known {
			t.Errorf("%s: which arguments are enough?", path)
		}
		check(path + " --no-such-flag " + line)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			wrong, known := mistaken[f.Value.Type()]
			if !known && !strings.HasPrefix(f.Value.Type(), "string") {
				t.Errorf("--%s: what is no %s?", f.Name, f.Value.Type())
			}
			for _, value := range wrong {
				check(fmt.Sprintf("%s --%s=%s %s", path, f.Name, value, line))
			}
		})
	})
}

// eachCommand calls f with the commands that have none below them.
func eachCommand(t *testing.T, c *cobra.Command, f func(path string, c *cobra.Command)) {
	t.Helper()
	for _, below := range c.Commands() {
		eachCommand(t, below, f)
	}
	if !c.HasSubCommands() {
		path := strings.TrimPrefix(c.CommandPath(), "dblock ")
		c.InheritedFlags() // which joins them to its own
		f(path, c)
	}
}
