package quorum

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock"
)

// Init sets up nodes for the first time: all of them at once, each empty or with locks of its own.
// They count one quarantine later. Init must reach every node. If a majority is set up already Init
// does nothing, because the others learn from that majority. So Init may be called again after a
// failure.
//
// Init is for an operator, in a script of the deployment and not at the start of each process.
// After the loss of a majority's data it declares the present state of the nodes to be complete.
// Tokens then rise above past ones only as far as the remaining nodes, and the clocks of all, know
// these.
func Init(ctx context.Context, nodes ...Node) error {
	if err := check(nodes); err != nil {
		return err
	}
	e := &Error{Op: "init"}
	fail := func(i int, err error) { e.Nodes = append(e.Nodes, NodeError{i + 1, nodes[i].name, err}) }
	var unknowing []int
	floor := int64(1)
	for i, n := range nodes {
		m, err := n.node.Memory(ctx)
		if err == nil && m.floor <= 0 {
			unknowing = append(unknowing, i)
		}
		var highest int64
		if err == nil {
			highest, err = n.node.Highest(ctx)
		}
		if err != nil {
			fail(i, err)
		}
		floor = max(floor, highest)
	}
	if len(nodes)-len(e.Nodes)-len(unknowing) >= majority(len(nodes)) {
		return nil
	}
	if len(e.Nodes) == 0 {
		for _, i := range unknowing {
			if err := nodes[i].node.Renew(ctx, floor); err != nil {
				fail(i, err)
			}
		}
	}
	if len(e.Nodes) > 0 {
		e.Err = fmt.Errorf("%w: every node is needed: call it again", dblock.ErrUnavailable)
		if ctx.Err() != nil {
			e.Err = fmt.Errorf("%w: %w", e.Err, context.Cause(ctx))
		}
		return e
	}
	return nil
}

// Quarantine declares that a node may have lost data: it was restored from a backup, or a standby
// has taken over that may have missed the latest commits. The node does not count for one
// quarantine, learns the tokens from the other nodes, and counts again after another one. Call
// Quarantine before clients can reach the node. An empty database needs no call.
func Quarantine(ctx context.Context, n Node) error {
	if n.node == nil {
		return fmt.Errorf("quorum: quarantine: %w: the node is none: use On", dblock.ErrInvalidOption)
	}
	if err := n.node.Renew(ctx, 0); err != nil {
		return &Error{Op: "quarantine", Err: err}
	}
	return nil
}
