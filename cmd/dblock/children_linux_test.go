package main

import (
	"os"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestWhyGoesOnWithWhatACommandWaitsFor(t *testing.T) {
	eachProcess(t, func(w *world) {
		inner := w.lock("inner")
		outer := w.command("run", "outer", "--", "sh", "-c", `"$0" run inner -- true`, os.Args[0])
		require.NoError(w, outer.Start())
		w.queued("inner", 1)
		contains(w, w.must("why", "outer"), "outer", "inner, for which 1 waits", "(orders)")
		if out := w.must("why", "inner"); strings.Contains(out, "outer") {
			w.Errorf("its holder waits for nothing:\n%s", out)
		}
		assert.NoError(w, inner.Unlock(w.Context()))
		assert.NoError(w, outer.Wait())
	})
}

func TestAProcessDescendsFromItsParents(t *testing.T) {
	own := os.Getpid()
	if !descends(own, os.Getppid()) || descends(os.Getppid(), own) || descends(own, own) || descends(own, 0) {
		t.Error("it is told otherwise")
	}
}
