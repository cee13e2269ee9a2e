package inspect

import (
	"context"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
)

// longestChain limits the names that Why reads.
const longestChain = 1000

// Why shows the wait chain of a name: first the name itself, as Lock shows it, and then every name
// that one of its holders waits for, directly or through others. Nearer names come first. Why shows
// at most 1,000 names.
//
// A holder of an Info is a waiter of another Info (AwaitedBy), in a deadlock maybe of an earlier
// one. If there is only one Info, none of its holders waits. Why does not see transactions of the
// application that keep a row locked: the command dblock why does.
func (i *Inspector) Why(ctx context.Context, name string) ([]Info, error) {
	if err := checkName("why", name); err != nil {
		return nil, err
	}
	var names []string
	err := i.read(ctx, "why", name, func(ctx context.Context, engine driver.Backend) (err error) {
		names, err = engine.Why(ctx, name, longestChain)
		return err
	})
	if err != nil || len(names) == 0 {
		return []Info{{Name: name}}, err
	}
	infos, err := i.describe(ctx, "why", names, driver.All)
	if err != nil {
		return nil, err
	}
	return chain(infos, name), nil
}

// chain returns the name, followed by the names that holders of earlier ones wait for. It omits a
// name that no holder waited for any more when it was described.
func chain(infos []Info, name string) []Info {
	from := slices.IndexFunc(infos, func(i Info) bool { return i.Name == name })
	if from < 0 {
		return []Info{{Name: name}}
	}
	chain := []Info{infos[from]}
	infos = slices.Delete(infos, from, from+1)
	for at := 0; at < len(chain); at++ {
		infos = slices.DeleteFunc(infos, func(i Info) bool {
			delays := slices.ContainsFunc(chain[at].Holders, i.AwaitedBy)
			if delays {
				chain = append(chain, i)
			}
			return delays
		})
	}
	return chain
}

// AwaitedBy reports whether the owner of a participant, such as a holder of another name, is one of
// i.Waiters.
func (i Info) AwaitedBy(participant Participant) bool {
	return slices.ContainsFunc(i.Waiters, func(w Participant) bool {
		return w.Session == participant.Session && w.Host == participant.Host && w.Thread == participant.Thread
	})
}
