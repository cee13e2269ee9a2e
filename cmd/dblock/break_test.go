package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestBreakTakesFromTheHolderThatWasSeen(t *testing.T) {
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
		keeps(w.run("break", "n", "--token", "1", "--reason", "why not", "--yes"), exitFailed,
			"\"n\" is not held with token 1: held with "+token+";")
		keeps(w.run("break", "n", "--reason", "why not", "--yes"), exitUsage, "no --token")
		keeps(w.run("break", "n", "--token", token, "--yes"), exitUsage, "no --reason")
		s := w.answers("no\n", "break", "n", "--token", token, "--reason", "why not")
		keeps(s, exitFailed, "nothing was done")
		contains(w, s.err, "worker-7", "Take it away? [y/N]")

		held.Asked() // a listener hears of it at once
		if s := w.answers("y\n", "break", "n", "--token", token, "--reason", "the host is gone"); s.status != 0 ||
			s.out != "Taken from 1 of 1 holders.\n" {
			w.Fatalf("%+v", s)
		}
		<-held.Context().Done()
		assert.ErrorIs(w, context.Cause(held.Context()), dblock.ErrLost)
		contains(w, w.must("events", "--kind", "broken"), "the host is gone")
		s = w.run("unlock", "n", "--token", token, "--reason", "again", "--yes") // its alias
		if s.status != exitFailed || !strings.Contains(s.err, "\"n\" is not held: nothing was done") {
			w.Errorf("%+v", s)
		}
	})
}

// screen is what a person has seen so far.
type screen struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *screen) shows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func TestBreakHitsNobodyWhoCameWhileItAsked(t *testing.T) {
	w := onSQLite(t)
	seen := w.lock("n")
	c := w.command("break", "n", "--token", fmt.Sprint(seen.Token()), "--reason", "it looked dead")
	answer, question := io.Pipe()
	var said screen
	c.Stdin, c.Stderr = answer, &said
	require.NoError(t, c.Start())
	w.until(func() bool { return said.shows("[y/N]") })
	require.NoError(t, seen.Unlock(t.Context()))
	next := w.lock("n")
	require.NoError(t, require.ErrOf(io.WriteString(question, "y\n")))
	_ = question.Close()
	if _ = c.Wait(); c.ProcessState.ExitCode() != exitFailed ||
		!said.shows("was released meanwhile: nothing was done") {
		t.Errorf("%v: %s", c.ProcessState, said.text.String())
	}
	assert.NoError(t, context.Cause(next.Context()), "the next holder lost it")
}
