package main

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock/inspect"
)

// started reports whether a process belongs to the command of a holder: the holder is a "dblock
// run" on this host, and an ancestor of the process. Only Linux tells.
func started(holder inspect.Participant, host string, pid int) bool {
	here, err := os.Hostname()
	return err == nil && holder.App == app && holder.Host == here && host == here && descends(pid, holder.PID)
}

// descends reports whether ancestor is an ancestor of a process.
func descends(pid, ancestor int) bool {
	for range 1000 {
		if pid = parent(pid); pid <= 1 || pid == ancestor {
			return pid == ancestor && pid > 0
		}
	}
	return false
}

// parent returns the PID of a process's parent; 0: not known.
func parent(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // PID (name) state parent …
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// follow adds to a chain the names awaited by the commands that its holders run, and the names
// behind those.
func follow(ctx context.Context, i *inspect.Inspector, chain []inspect.Info) ([]inspect.Info, error) {
	for at := 0; at < len(chain); at++ {
		for _, holder := range chain[at].Holders {
			if holder.App != app {
				continue
			}
			names, err := awaitedUnder(ctx, i, holder)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				more, err := i.Why(ctx, name)
				if err != nil {
					return nil, err
				}
				for _, info := range more {
					if !slices.ContainsFunc(chain, func(known inspect.Info) bool { return known.Name == info.Name }) {
						chain = append(chain, info)
					}
				}
			}
		}
	}
	return chain, nil
}

// awaitedUnder returns the names that the processes under a holder wait for.
func awaitedUnder(ctx context.Context, i *inspect.Inspector, holder inspect.Participant) (names []string, err error) {
	waits := false
	for s, err := range i.Sessions(ctx, inspect.SessionFilter{Host: holder.Host}) {
		if err != nil {
			return nil, err
		}
		waits = waits || s.Waiting > 0 && started(holder, s.Host, s.PID)
	}
	if !waits {
		return nil, nil
	}
	for listed, err := range i.List(ctx, inspect.Filter{Contended: true}) {
		if err != nil {
			return nil, err
		}
		info, err := i.Lock(ctx, listed.Name) // with all waiters
		if err != nil {
			return nil, err
		}
		if awaitedByChild(info, holder) {
			names = append(names, info.Name)
		}
	}
	return names, nil
}

func awaitedByChild(i inspect.Info, holder inspect.Participant) bool {
	return slices.ContainsFunc(i.Waiters, func(w inspect.Participant) bool { return started(holder, w.Host, w.PID) })
}
