package quorum

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
)

// ErrQuarantined: a node may have lost its data not long ago, or has not been set up by Init, and
// does not count.
var ErrQuarantined = errors.New("quarantined")

// Error says what was being done to which lock, why it failed, and what each node said. errors.Is
// finds Err: dblock.ErrNotAcquired where somebody else holds the lock, or ctx ended, with the
// context's error; dblock.ErrUnavailable where a majority of the nodes cannot be had, with
// ErrQuarantined where that is for the sake of nodes in quarantine; dblock.ErrLost;
// dblock.ErrClosed; what all are refused for: an invalid name, a missing schema.
type Error struct {
	Op    string // "lock", "trylock", "unlock", "init"
	Name  string // of the lock
	Err   error
	Nodes []NodeError // those that failed, in their order
}

// NodeError is what one node said.
type NodeError struct {
	Node int    // its place among the nodes, from 1
	Name string // as Named gave it
	Err  error
}

// Error names the operation, the lock, the cause, and each node that failed with its own.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "quorum: %s", e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	for _, n := range e.Nodes {
		fmt.Fprintf(&b, "; %v", n)
	}
	return b.String()
}

// Unwrap returns the cause, not those of the nodes: that one is away does not make the lock
// unavailable.
func (e *Error) Unwrap() error { return e.Err }

// Error names the node and its cause.
func (e NodeError) Error() string {
	return fmt.Sprintf("%s: %v", e.place(), e.Err)
}

func (e NodeError) place() string {
	if e.Name != "" {
		return fmt.Sprintf("node %d (%s)", e.Node, e.Name)
	}
	return fmt.Sprintf("node %d", e.Node)
}

// Unwrap returns the cause.
func (e NodeError) Unwrap() error { return e.Err }

var (
	errLate       = fmt.Errorf("%w: no answer within the node's time limit", dblock.ErrUnavailable)
	errLateBefore = fmt.Errorf("%w: it did not answer the last request within its time limit, and the next one not yet", dblock.ErrUnavailable)
	errDismissed  = errors.New("was not waited for")
	errLostAgain  = errors.New("was locked, and lost again before a majority was")
)

// permanent reports whether to ask a node again is of no use.
func permanent(err error) bool {
	for _, kind := range []error{
		dblock.ErrInvalidName, dblock.ErrInvalidOption, dblock.ErrSchema, dblock.ErrConfig, dblock.ErrUnsupported, dblock.ErrClosed,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// node says which node is meant.
func (c *Client) node(i int, err error) NodeError { return NodeError{i + 1, c.nodes[i].name, err} }

// verdict turns the failures of a round, by node, into one. held says that enough nodes could have
// been had, if others did not hold them; final, that another round is of no use.
func (c *Client) verdict(op, name string, failures []error) (e *Error, held, final bool) {
	e = &Error{Op: op, Name: name}
	var away, quarantined, hopeless int
	var hope error
	for i, err := range failures {
		if err == nil {
			continue
		}
		e.Nodes = append(e.Nodes, c.node(i, err))
		switch {
		case permanent(err):
			hopeless++
			hope = err
		case errors.Is(err, ErrQuarantined):
			quarantined++
		case !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, errDismissed) && !errors.Is(err, errLostAgain):
			away++
		}
	}
	spare := len(c.nodes) - c.majority
	switch {
	case hopeless > spare:
		e.Err = hope
		return e, false, true
	case hopeless+away+quarantined <= spare:
		e.Err = dblock.ErrNotAcquired
		return e, true, false
	case hopeless+away <= spare:
		e.Err = fmt.Errorf("%w: %d of %d nodes are %w", dblock.ErrUnavailable, quarantined, len(c.nodes), ErrQuarantined)
	default:
		e.Err = fmt.Errorf("%w: %d of %d nodes cannot be had, and %d are needed", dblock.ErrUnavailable, hopeless+away+quarantined, len(c.nodes), c.majority)
		if quarantined > 0 {
			e.Err = fmt.Errorf("%w (%d are %w)", e.Err, quarantined, ErrQuarantined)
		}
	}
	return e, false, false
}
