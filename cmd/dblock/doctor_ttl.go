package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/migrate"
)

// ttls looks for clients that lose their locks in a failover. No table has a client's TTL: the end
// of the client's session shows it.
func ttls(ctx context.Context, e *examination) ([]finding, error) {
	f, err := e.failover(ctx)
	if err != nil {
		return nil, err
	}
	if f.takes == 0 {
		return found(fine("no failover is known of that a TTL must outlast"))
	}
	var left []time.Duration
	err = e.locking(ctx, func(c *client) error {
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
	return found(f.judge(left))
}

// failover is the failover that a client has to expect. The zero value: no other server is known
// that would take over.
type failover struct {
	takes time.Duration // at least, with the usual settings or those that the server tells
	how   string
}

// followers counts the standbys that replay the whole server: neither backups nor subscribers.
const followers = `SELECT count(*) FROM pg_stat_replication r WHERE coalesce(state, '') <> 'backup'
	AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')`

// clusterSettings are those of Galera and of Group Replication that decide how long a failover
// takes.
const clusterSettings = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_provider_options', " +
	"'group_replication_group_name', 'group_replication_member_expel_timeout')"

// failover reads which failover is to be expected. PostgreSQL does not tell what promotes its
// standbys.
func (e *examination) failover(ctx context.Context) (f failover, err error) {
	switch e.engine {
	case migrate.Postgres:
		var standbys int
		if err := e.QueryRowContext(ctx, followers).Scan(&standbys); err != nil || standbys == 0 {
			return f, err
		}
		return failover{30 * time.Second,
			"Patroni, for one, notices a failure after its ttl, 30s by default, and then promotes a standby"}, nil
	case migrate.MySQL:
		rows, err := e.QueryContext(ctx, clusterSettings)
		if err != nil {
			return f, err
		}
		defer rows.Close()
		settings := make(map[string]string)
		for rows.Next() {
			var name, value string
			if err := rows.Scan(&name, &value); err != nil {
				return f, err
			}
			settings[strings.ToLower(name)] = value
		}
		return ofCluster(settings), rows.Err()
	}
	return f, nil
}

// ofCluster returns the failover of a node of Galera, or of a member of a group, which the others
// suspect after 5 s.
func ofCluster(settings map[string]string) failover {
	switch {
	case settings["wsrep_on"] == "ON":
		for option := range strings.SplitSeq(settings["wsrep_provider_options"], ";") {
			value, is := strings.CutPrefix(strings.ReplaceAll(option, " ", ""), "evs.suspect_timeout=PT")
			takes, err := time.ParseDuration(strings.ToLower(value))
			if is && err == nil {
				return failover{takes, fmt.Sprintf("the cluster leaves a silent node behind after "+
					"evs.suspect_timeout, %v, and then continues", takes)}
			}
		}
	case settings["group_replication_group_name"] != "":
		seconds, _ := strconv.Atoi(settings["group_replication_member_expel_timeout"])
		takes := 5*time.Second + time.Duration(seconds)*time.Second
		return failover{takes, fmt.Sprintf("the group expels a silent member after 5s and "+
			"group_replication_member_expel_timeout, %v in all, and then continues", takes)}
	}
	return failover{}
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
