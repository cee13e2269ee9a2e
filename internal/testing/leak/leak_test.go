package leak

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/testing/assert"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// leaked is a goroutine that Find must name.
func leaked(end <-chan struct{}) { <-end }

func TestAGoroutineThatStaysIsFound(t *testing.T) {
	before := Running()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		go leaked(end)
		err := Find(before)
		if err == nil || !strings.Contains(err.Error(), "leak.leaked") || !strings.HasPrefix(err.Error(),
			"1 goroutines") {
			t.Errorf("found: %v", err)
		}
		close(end)
	})
}

func TestAGoroutineThatEndsIsAwaited(t *testing.T) {
	before := Running()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		go leaked(end)
		time.AfterFunc(patience/2, func() { close(end) })
		assert.NoError(t, Find(before))
	})
}

func TestAGoroutineOfBeforeMayStay(t *testing.T) {
	end := make(chan struct{})
	go leaked(end)
	defer close(end)
	assert.NoError(t, Find(Running()))
}
