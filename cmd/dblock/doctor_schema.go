package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/migrate"
)

// schema checks whether this build can work with the tables. The engine reads them as it does for a
// client, so it refuses the same tables.
func schema(ctx context.Context, e *examination) ([]finding, error) {
	is, err := e.locks().Backend.Schema(ctx)
	if errors.Is(err, driver.ErrSchema) {
		return found(problem(err.Error(), "see docs/operating.md"))
	}
	if err != nil {
		return found(problem(fmt.Sprintf("dblock's tables cannot be read: %v", because(ctx, err)),
			"clients cannot, either"))
	}
	if err := is.Check(); err != nil {
		return found(problem(advised(err).Error(), "see docs/upgrading.md"))
	}
	e.tables = is
	if is.Version > driver.SchemaVersion {
		return found(note(fmt.Sprintf("the tables are at version %d, and this command is for version %d: it can use "+
			"them", is.Version, driver.SchemaVersion), "install the newer command"))
	}
	return found(fine(fmt.Sprintf("the tables are at version %d, usable from %d", is.Version, is.UsableFrom)))
}

// noTables returns the finding of a check that needs the tables, if this build cannot use them.
func noTables(what string) ([]finding, error) {
	return found(unknown("without tables that this build can use, "+what, "see schema"))
}

// applied is a version of the tables, and the time when it was applied.
type applied struct {
	version int
	at      time.Time
}

// appliedAt reads goose's times. On PostgreSQL they are in the time zone of the session that
// migrated, without it: that session must have had the zone of this one.
var appliedAt = "SELECT version_id, %s FROM " + migrate.Locks.Table() +
	" WHERE is_applied AND version_id > 0 ORDER BY version_id"

func (e *examination) applied(ctx context.Context) (all []applied, err error) {
	micros := "CAST(strftime('%s', tstamp) AS integer) * 1000000"
	switch e.engine {
	case migrate.Postgres:
		micros = "(extract(epoch FROM tstamp AT TIME ZONE current_setting('TimeZone')) * 1000000)::bigint"
	case migrate.MySQL:
		micros = "CAST(UNIX_TIMESTAMP(tstamp) * 1000000 AS SIGNED)"
	}
	rows, err := e.QueryContext(ctx, fmt.Sprintf(appliedAt, micros))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a applied
		var at int64
		if err := rows.Scan(&a.version, &at); err != nil {
			return nil, err
		}
		a.at = time.UnixMicro(at)
		all = append(all, a)
	}
	return all, rows.Err()
}

// builds looks for clients of older builds, among those that have taken a lock. No table has a
// client's build. But a client begins only with tables of its build's version or above: a client
// that began before a version was applied is older than that version.
func builds(ctx context.Context, e *examination) (made []finding, err error) {
	is := e.tables
	if is.Version == 0 {
		return noTables("clients are not known")
	}
	all, err := e.applied(ctx)
	if err != nil || len(all) == 0 || all[len(all)-1].version < is.Version {
		said := "it has no times of these versions"
		if err != nil {
			said = because(ctx, err).Error()
		}
		return found(unknown("which clients are older than the tables is told by the times in "+
			migrate.Locks.Table()+": "+said,
			"use a role that may read it; where the application runs the migrations itself, look at its own history"))
	}
	n := 0
	err = e.locking(ctx, func(c *client) error {
		for s, err := range inspect.New(c).Sessions(ctx, inspect.SessionFilter{}) {
			if err != nil {
				return err
			}
			n++
			if f, is := older(s, all, is.UsableFrom, e.engine == migrate.Postgres); is {
				made = append(made, f)
			}
		}
		return nil
	})
	if err == nil && len(made) == 0 {
		made = append(made, fine(fmt.Sprintf("%d clients have taken a lock, all of them after version %d was applied",
			n, is.Version)))
	}
	return made, err
}

// zones bounds the difference of two time zones, one of which is mostly UTC.
const zones = 14 * time.Hour

// older reports on a client that began before the latest version was applied. zoneless: goose's
// times are in an unknown time zone, that of the migration (PostgreSQL).
func older(s inspect.Session, all []applied, usableFrom int, zoneless bool) (finding, bool) {
	next := slices.IndexFunc(all, func(a applied) bool { return s.Started.Before(a.at) })
	if next < 0 {
		return finding{}, false
	}
	who := fmt.Sprintf("the client %s of %s:%d began before version %d was applied (%s), so its build is for an "+
		"older one", s.App, s.Host, s.PID, all[next].version, migrate.Locks.Table())
	if zoneless {
		who += ", if the migration ran in the time zone of this session"
	}
	switch {
	case usableFrom >= all[next].version && zoneless && all[next].at.Sub(s.Started) < zones:
		return note(fmt.Sprintf("%s; the tables serve builds for %d and later", who, usableFrom),
			"see which build it has; if it is older, stop it"), true
	case usableFrom >= all[next].version:
		return problem(fmt.Sprintf("%s, and the tables serve builds for %d and later", who, usableFrom),
			"stop it; its locks end with the next heartbeat"), true
	}
	return note(who+", and may go on", "deploy the new build there, too"), true
}
