package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
)

func TestUnlockTakesFromTheHolderThatWasSeen(t *testing.T) {
	eachKind(t, func(w *world) {
		held := w.lock("n", dblock.Owner("there", "worker-7"))
		token := fmt.Sprint(held.Token())
		keeps := func(s said, status int, says string) {
			w.Helper()
			contains(w, s.err, says)
			if s.status != status || held.Context().Err() != nil {
				w.Errorf("status %d, want %d; the holder: %v", s.status, status, context.Cause(held.Context()))
			}
		}
		keeps(w.run("unlock", "n", "--token", "1", "--reason", "why not", "--yes"), exitFailed, "nobody has \"n\" with token [1]: its holders have ["+token+"]")
		keeps(w.run("unlock", "n", "--reason", "why not", "--yes"), exitUsage, "no --token")
		keeps(w.run("unlock", "n", "--token", token, "--yes"), exitUsage, "no --reason")
		c := w.command("unlock", "n", "--token", token, "--reason", "why not")
		c.Stdin = strings.NewReader("no\n")
		s := outcome(w.T, c)
		keeps(s, exitFailed, "nothing was done")
		contains(w, s.err, "worker-7", "Take it away? [y/N]")

		c = w.command("unlock", "n", "--token", token, "--reason", "the host is gone")
		c.Stdin = strings.NewReader("y\n")
		if s := outcome(w.T, c); s.status != 0 || s.out != "Taken from 1 of 1 holders.\n" {
			w.Fatalf("%+v", s)
		}
		<-held.Context().Done()
		if err := context.Cause(held.Context()); !errors.Is(err, dblock.ErrLost) {
			w.Error(err)
		}
		contains(w, w.must("events", "--kind", "broken"), "the host is gone")
		s = w.run("unlock", "n", "--token", token, "--reason", "again", "--yes")
		if s.status != exitFailed || !strings.Contains(s.err, "nobody has \"n\": nothing was done") {
			w.Errorf("%+v", s)
		}
	})
}
