package coming

import (
	"context"

	"github.com/dblock-go/dblock/election"
)

// Control runs a controller in one of all pods, until ctx ends.
func Control(
	ctx context.Context, client *Client, pod string, reconcile func(ctx context.Context, token int64) error,
) error {
	return election.New(client).Campaign(ctx, "controller", func(ctx context.Context, t *election.Term) error {
		return reconcile(ctx, t.Token()) // until ctx ends, with the leadership or with the pod
	}, election.Metadata(map[string]string{"pod": pod}))
}

// Leaders calls f with the pod of each new leader, and with "" when there is none. It returns the
// error that ends the observation, such as that of ctx.
func Leaders(ctx context.Context, client *Client, f func(pod string)) error {
	for leader, err := range election.New(client).Observe(ctx, "controller") {
		if err != nil {
			return err
		}
		f(leader.Metadata["pod"])
	}
	return nil
}
