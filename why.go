package dblock

import (
	"context"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
)

// longestChain is how many names Why reads.
const longestChain = 1000

// Why tells what a name waits for. First is what Inspect tells of it. Then comes the same of every
// name that one of its holders waits for, directly or through others: the next first, 1,000 names
// at most. Such a holder is a waiter of another Info (AwaitedBy). In a deadlock that Info may be an
// earlier one. Of a single Info no holder waits. Why does not see transactions of the application
// that keep a row locked: dblock why does.
func (c *Client[TX]) Why(ctx context.Context, name string) ([]Info, error) {
	if err := contract.CheckText(name); err != nil {
		return nil, &LockError{"why", name, fmt.Errorf("%w: %w", ErrInvalidName, err)}
	}
	var names []string
	err := c.inquire(ctx, "why", name, func(ctx context.Context, engine driver.Backend) (err error) {
		names, err = engine.Why(ctx, name, longestChain)
		return err
	})
	if err != nil || len(names) == 0 {
		return []Info{{Name: name}}, err
	}
	infos, err := c.describe(ctx, "why", names, driver.AllWaiters)
	if err != nil {
		return nil, err
	}
	return chain(infos, name), nil
}

// chain begins with a name. Then come those that the holders of the ones before wait for. What
// ceased to be one of them before it was described is left out.
func chain(infos []Info, name string) []Info {
	from := slices.IndexFunc(infos, func(i Info) bool { return i.Name == name })
	if from < 0 {
		return []Info{{Name: name}}
	}
	chain := []Info{infos[from]}
	infos = slices.Delete(infos, from, from+1)
	for at := 0; at < len(chain); at++ {
		infos = slices.DeleteFunc(infos, func(i Info) bool {
			delays := slices.ContainsFunc(chain[at].Holders, func(holder Participant) bool { return i.AwaitedBy(holder) })
			if delays {
				chain = append(chain, i)
			}
			return delays
		})
	}
	return chain
}

// AwaitedBy reports whether the owner of a participant, such as a holder of another name, has a
// place in the queue: of those in i.Waiters.
func (i Info) AwaitedBy(participant Participant) bool {
	return slices.ContainsFunc(i.Waiters, func(w Participant) bool {
		return w.Session == participant.Session && w.Host == participant.Host && w.Thread == participant.Thread
	})
}
