package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestALockOutlivesHold(t *testing.T) {
	eachProcess(t, func(w *world) {
		token := strings.TrimSpace(w.must("hold", "deploy", "--for", "1h"))
		contains(w, w.must("ls"), "deploy", token)
		for range 2 {
			w.must("renew", "deploy", token, "--for", "2h")
		}
		for _, most := range []string{"--no-wait", "--wait=4s"} {
			if s := w.run("hold", "deploy", "--for", "1h", most); s.status != exitNotFree || s.out != "" {
				w.Errorf("a lock that is held, %s: %+v", most, s)
			}
		}
		var renewed struct {
			Name  string
			Token int64
			Until time.Time
		}
		out := w.must("renew", "deploy", token, "--for", "3h", "--json")
		if err := json.Unmarshal([]byte(out), &renewed); err != nil || renewed.Name != "deploy" ||
			fmt.Sprint(renewed.Token) != token || time.Until(renewed.Until) < 2*time.Hour {
			w.Errorf("%s: %v", out, err)
		}
		host, err := os.Hostname()
		require.NoError(w, err)
		for _, wrong := range [][]string{{"release", "deploy", "1"}, {"renew", "deploy", "1", "--for", "1h"}} {
			s := w.run(wrong...)
			contains(w, s.err, wrong[0]+" \"deploy\": ", "held by "+host+" thread ", "with token "+token, " since 20")
			if s.status != exitFailed || strings.Contains(s.err, "session") {
				w.Errorf("%v: %+v", wrong, s)
			}
		}
		w.must("release", "deploy", token)
		if s := w.run("renew", "deploy", token, "--for", "1h"); s.status != exitFailed {
			w.Errorf("after release: %+v", s)
		}
		if out := w.must("ls"); strings.Contains(out, "deploy") {
			w.Errorf("it is held: %s", out)
		}
	})
}

// Broken by a lock that is held until its time has passed, with a token that nobody knows.
func TestHoldReleasesALockWhoseTokenCannotBeWritten(t *testing.T) {
	w := onSQLite(t)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	t.Cleanup(func() { _ = writer.Close() })
	c := w.command("hold", "deploy", "--for", "1h")
	var complaints strings.Builder
	c.Stdout, c.Stderr = writer, &complaints
	if err := c.Run(); err == nil || c.ProcessState.ExitCode() != exitFailed {
		t.Errorf("%v, status %d", err, c.ProcessState.ExitCode())
	}
	contains(w, complaints.String(), "the token cannot be written, so that the lock is given up: ", "pipe")
	w.must("hold", "deploy", "--for", "1h", "--no-wait")
}
