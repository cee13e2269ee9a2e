package quorum

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock"
)

// ErrQuarantined: a node does not count, because it may have lost its data not long ago, or has not
// been set up by Init.
var ErrQuarantined = errors.New("quarantined")

// Error has the operation, the lock, the reason of the failure, and the error of each node.
// errors.Is finds Err: dblock.ErrNotAcquired where there is another holder, or where ctx ended,
// with the context's error; dblock.ErrUnavailable where no majority of the nodes is available, with
// ErrQuarantined where nodes in quarantine are the reason; dblock.ErrLost; dblock.ErrClosed; and
// errors of all nodes, such as an invalid name or a missing schema.
type Error struct {
	Op    string // "lock", "trylock", "unlock", "init"
	Name  string // of the lock
	Err   error
	Nodes []NodeError // the nodes that failed, in their order
}

// NodeError is the error of one node.
type NodeError struct {
	Node int    // its number among the nodes, from 1
	Name string // as set by Named
	Err  error
}

// Error names the operation, the lock, the cause, and each failed node with its own cause.
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

// Unwrap returns the cause, not those of the nodes: one node that is away does not make the lock
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
	errLateBefore = fmt.Errorf("%w: it did not answer the last request within its time limit, and the next one not yet",
		dblock.ErrUnavailable)
	errCalledOff = errors.New("was not waited for")
	errLostAgain = errors.New("was locked, and lost again before a majority was")
)

// permanent reports whether another request to the node would be useless.
func permanent(err error) bool {
	for _, kind := range []error{
		dblock.ErrInvalidName, dblock.ErrInvalidOption, dblock.ErrSchema, dblock.ErrConfig, dblock.ErrUnsupported,
		dblock.ErrClosed,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// node adds the node to an error.
func (c *Client) node(i int, err error) NodeError { return NodeError{i + 1, c.nodes[i].name, err} }

// verdict converts the failures of a round, by node, to one error. held reports that enough nodes
// are available, but have other holders. final reports that another round would be useless.
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
		case !errors.Is(err, dblock.ErrNotAcquired) && !errors.Is(err, errCalledOff) && !errors.Is(err, errLostAgain):
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
		e.Err = fmt.Errorf("%w: %d of %d nodes are %w", dblock.ErrUnavailable, quarantined, len(c.nodes),
			ErrQuarantined)
	default:
		e.Err = fmt.Errorf("%w: %d of %d nodes are not available, and %d are needed", dblock.ErrUnavailable,
			hopeless+away+quarantined, len(c.nodes), c.majority)
		if quarantined > 0 {
			e.Err = fmt.Errorf("%w (%d are %w)", e.Err, quarantined, ErrQuarantined)
		}
	}
	return e, false, false
}
