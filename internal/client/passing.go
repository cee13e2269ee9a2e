package client

import "context"

// passOn gives the lock of a member to the next of its run, which costs nothing. Where the run is
// being settled, the answer to that is waited for: a release before it would let another session
// in.
func (c *Client) passOn(ctx context.Context, k *claim) (passed bool, err error) {
	if k.run.Pass(k.attempt) {
		c.registry.passed(k)
		return true, nil
	}
	return false, k.run.Settled(ctx)
}

// releasedRun notes that the database knows no more of the run of an attempt, which has released
// it.
func (c *Client) releasedRun(k *claim) {
	if k.run != nil {
		c.registry.settled("", k.run.End())
	}
}
