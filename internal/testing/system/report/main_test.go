package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

// TestAReportSaysWhatAPersonWants on what go test -json wrote of a package that passes, one with a
// failure, one that does not build and one that hangs.
func TestAReportSaysWhatAPersonWants(t *testing.T) {
	events := []event{
		{Action: "start", Package: "x/a"},
		{Action: "run", Package: "x/a", Test: "TestA"},
		{Action: "output", Package: "x/a", Test: "TestA", Output: "=== RUN   TestA\n"},
		{Action: "run", Package: "x/a", Test: "TestA/in"},
		{Action: "output", Package: "x/a", Test: "TestA/in", Output: "    a_test.go:3: wrong\n"},
		{Action: "output", Package: "x/a", Test: "TestA/in", Output: "    --- FAIL: TestA/in (0.30s)\n"},
		{Action: "fail", Package: "x/a", Test: "TestA/in", Elapsed: 0.3},
		{Action: "run", Package: "x/a", Test: "TestA/fine"},
		{Action: "output", Package: "x/a", Test: "TestA/fine", Output: "    a_test.go:4: nothing to see\n"},
		{Action: "pass", Package: "x/a", Test: "TestA/fine", Elapsed: 0.2},
		{Action: "output", Package: "x/a", Test: "TestA", Output: "    a_test.go:5: this too\n"},
		{Action: "output", Package: "x/a", Test: "TestA", Output: "--- FAIL: TestA (0.50s)\n"},
		{Action: "fail", Package: "x/a", Test: "TestA", Elapsed: 0.5},
		{Action: "output", Package: "x/a", Output: "FAIL\n"},
		{Action: "output", Package: "x/a", Output: "FAIL\tx/a\t0.6s\n"},
		{Action: "fail", Package: "x/a", Elapsed: 0.6},

		{Action: "run", Package: "x", Test: "TestSkip"},
		{Action: "output", Package: "x", Test: "TestSkip", Output: "    b_test.go:1: no server\n"},
		{Action: "output", Package: "x", Test: "TestSkip", Output: "--- SKIP: TestSkip (0.00s)\n"},
		{Action: "skip", Package: "x", Test: "TestSkip"},
		{Action: "run", Package: "x", Test: "TestSkip2"},
		{Action: "output", Package: "x", Test: "TestSkip2", Output: "    b_test.go:2: no server\n"},
		{Action: "skip", Package: "x", Test: "TestSkip2"},
		{Action: "output", Package: "x", Output: "PASS\n"},
		{Action: "output", Package: "x", Output: "ok  \tx\t1.2s\n"},
		{Action: "pass", Package: "x", Elapsed: 1.2},

		{Action: "output", Package: "x/none", Output: "?   \tx/none\t[no test files]\n"},
		{Action: "skip", Package: "x/none"},

		{Action: "build-output", ImportPath: "x/c", Output: "c.go:1: undefined: d\n"},
		{Action: "output", Package: "x/c", Output: "FAIL\tx/c [build failed]\n"},
		{Action: "fail", Package: "x/c"},

		{Action: "run", Package: "x/d", Test: "TestB"},
		{Action: "output", Package: "x/d", Test: "TestB", Output: "sentences: 12\n"},
		{Action: "run", Package: "x/d", Test: "TestB/one"},
		{Action: "pass", Package: "x/d", Test: "TestB/one", Elapsed: 0.1},
		{Action: "pass", Package: "x/d", Test: "TestB", Elapsed: 0.1},
		{Action: "run", Package: "x/d", Test: "TestHangs"},
		{Action: "output", Package: "x/d", Test: "TestHangs", Output: "panic: test timed out\n"},
	}
	var in strings.Builder
	in.WriteString("go: downloading x/y v1.0.0\n")
	for _, e := range events {
		require.NoError(t, json.NewEncoder(&in).Encode(e))
	}
	const want = `go: downloading x/y v1.0.0
--- FAIL: TestA/in (0.30s)
    a_test.go:3: wrong
    to repeat it: try -run '^TestA$/^in$' ./a
--- FAIL: TestA (0.50s)
    a_test.go:5: this too
FAIL
FAIL	x/a	0.6s
ok  	x	1.2s
c.go:1: undefined: d
FAIL	x/c [build failed]
== 1m1s: 4 of 5 packages have ended, 2 failures; tests that have ended in the others: ./d 1 (1 of 12 sentences)
--- FAIL: TestHangs (it did not end)
panic: test timed out
    to repeat it: try -run '^TestHangs$' ./d
left out:
    . TestSkip and 1 more: no server
the slowest packages:
     1.2s  .
     0.6s  ./a
the slowest tests:
     0.3s  ./a TestA/in
     0.2s  ./a TestA/fine
     0.1s  ./d TestB/one
failed:
    ./a TestA/in
        try -run '^TestA$/^in$' ./a
    ./c
    ./d TestHangs
        try -run '^TestHangs$' ./d
`
	var got strings.Builder
	r := newReport(&got, false, "x", 5, "try")
	for line := range strings.Lines(in.String()) {
		r.line(line)
	}
	r.progress(61 * time.Second)
	r.end()
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}

	got.Reset()
	r = newReport(&got, true, "x", 5, "try")
	for line := range strings.Lines(in.String()) {
		r.line(line)
	}
	if all := "=== RUN   TestA\n    a_test.go:3: wrong\n    --- FAIL: TestA/in (0.30s)\n    a_test.go:4: nothing to " +
		"see\n    a_test.go:5: this too\n--- FAIL: TestA (0.50s)\nFAIL\n"; !strings.Contains(got.String(), all) {
		t.Errorf("all that was said:\n%s", got.String())
	}
}
