package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/inspect"
)

// failover is the failover that a client has to expect. The zero value: no other server is known
// that would take over.
type failover struct {
	takes time.Duration // at least, with the usual settings or those that the server tells
	how   string
}

// byPatroni is the failover of PostgreSQL, which does not tell what promotes its standbys.
var byPatroni = failover{30 * time.Second,
	"Patroni, for one, notices a failure after its ttl, 30s by default, and then promotes a standby"}

// ofGroup returns the failover of Group Replication, which suspects a member after 5 s.
func ofGroup(expelTimeout int) failover {
	takes := 5*time.Second + time.Duration(expelTimeout)*time.Second
	return failover{takes, fmt.Sprintf("the group expels a silent member after 5s and "+
		"group_replication_member_expel_timeout, %v in all, and then continues", takes)}
}

// ofGalera returns the failover of a node with these wsrep_provider_options.
func ofGalera(options string) failover {
	for option := range strings.SplitSeq(options, ";") {
		name, value, _ := strings.Cut(option, "=")
		if strings.TrimSpace(name) != "evs.suspect_timeout" {
			continue
		}
		takes, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(strings.TrimSpace(value), "PT")))
		if err == nil {
			return failover{takes, fmt.Sprintf("the cluster leaves a silent node behind after evs.suspect_timeout, "+
				"%v, and then continues", takes)}
		}
	}
	return failover{}
}

// ttls looks for clients that lose their locks in a failover. No table has a client's TTL: the end
// of the client's session shows it.
func ttls(ctx context.Context, e *examination) ([]finding, error) {
	if e.failover.takes == 0 {
		return found(fine("no failover is known of that a TTL must outlast"))
	}
	if e.tables.Version == 0 {
		return noTables("the TTLs of clients are not known")
	}
	var left []time.Duration
	err := e.locking(ctx, func(c *client) error {
		for s, err := range inspect.New(c).Sessions(ctx, inspect.SessionFilter{}) {
			if err != nil {
				return err
			}
			if s.Alive {
				left = append(left, time.Until(s.Until))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found(e.failover.judge(left))
}

// judge judges by the time that sessions have left without another heartbeat. A heartbeat is sent
// every fifth of a TTL, so the TTL is at most 5/4 of the rest.
func (f failover) judge(left []time.Duration) finding {
	var short []time.Duration
	for _, each := range left {
		if ttl := each * 5 / 4; ttl < f.takes {
			short = append(short, ttl)
		}
	}
	if len(short) == 0 {
		return fine(fmt.Sprintf("no TTL of %d clients is seen to be shorter than a failover: %s", len(left), f.how))
	}
	return note(fmt.Sprintf("clients with a TTL of %v or less: %d; they lose their locks in a failover that takes "+
		"longer: %s", slices.Max(short).Round(time.Second), len(short), f.how),
		"set a TTL (WithTTL) longer than detection + promotion + a margin, or live with the loss")
}
