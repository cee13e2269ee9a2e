package jobs

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/dblock-go/dblock/internal/client"
)

// outcomeOf returns the outcome of a job that did not return: the value with which it panicked, and
// the stack. A deferred function calls it with the value that recover returned. For nil the job has
// ended its goroutine.
func outcomeOf(value any) error {
	if value == nil {
		return errors.New("it ended its goroutine (runtime.Goexit)")
	}
	stack := string(debug.Stack())
	if _, below, ok := strings.Cut(stack, "\npanic("); ok { // above it are the deferred functions
		_, below, _ = strings.Cut(below, "\n\t") // the arguments, and the place in the runtime
		_, stack, _ = strings.Cut(below, "\n")
	}
	text := client.Clean(fmt.Sprint(value), client.MaxReason) // leaves room for the stack
	return fmt.Errorf("it panicked: %s\n%s", text, stack)
}
