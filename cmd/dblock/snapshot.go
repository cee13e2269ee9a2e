package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/migrate"
)

const (
	// longOpen is the age from which on a transaction is long, unless --older gives another.
	longOpen = 5 * time.Minute
	// manyTransactions is the number of transactions begun since a snapshot from which on it is
	// old, since not every snapshot has a time. A busy server begins so many in minutes.
	manyTransactions = 1_000_000
	// manyVersions is the number of dead row versions in dblock's tables from which on a snapshot
	// keeps too many, if as many transactions have begun since.
	manyVersions = 10_000
)

// snapshot is the oldest snapshot of a PostgreSQL server. VACUUM keeps all row versions that the
// snapshot may still see. A transaction that writes counts from its start.
type snapshot struct {
	Kind         string
	HeldBy       string
	Age          time.Duration `json:",omitempty"` // 0: not known
	Transactions int64         // begun on the server since
	Versions     int64         // dead row versions in dblock's tables, whatever keeps them
	CatalogsOnly bool          `json:",omitempty"` // VACUUM keeps only versions in the system catalogs
}

// The kinds of what can hold a snapshot.
const (
	ofTransaction = "transaction"
	ofPrepared    = "prepared transaction"
	ofSlot        = "replication slot"
	ofStandby     = "standby with hot_standby_feedback"
)

// remedies say how to end a snapshot.
var remedies = map[string]string{
	ofTransaction: "end it (pg_terminate_backend); set idle_in_transaction_session_timeout; make backups on a standby",
	ofPrepared:    "COMMIT PREPARED or ROLLBACK PREPARED",
	ofSlot:        "if nothing uses it any more, drop it (pg_drop_replication_slot)",
	ofStandby:     "end the long query there, or set hot_standby_feedback = off there",
}

// oldestSnapshots selects the oldest snapshot for which VACUUM keeps versions of dblock's tables,
// and then the oldest for which it keeps versions of the catalogs only. VACUUM leaves transactions
// of other databases and other VACUUMs out of account. A user without pg_read_all_stats sees the
// snapshots of other users, but not their state and times.
const oldestSnapshots = `
	WITH held AS (
		SELECT false AS catalogs, CASE WHEN r.pid IS NULL THEN '` + ofTransaction + `' ELSE '` + ofStandby + `' END AS kind,
		       concat_ws(', ', 'pid ' || a.pid, 'user ' || a.usename, nullif(a.application_name, ''), a.state) AS held_by,
		       extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds,
		       greatest(age(a.backend_xid), age(a.backend_xmin)) AS transactions
		  FROM pg_stat_activity a LEFT JOIN pg_stat_replication r USING (pid)
		 WHERE coalesce(a.backend_xid, a.backend_xmin) IS NOT NULL AND a.pid <> pg_backend_pid()
		   AND (r.pid IS NOT NULL OR a.datname = current_database())
		   AND a.pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v)
		UNION ALL
		SELECT false, '` + ofPrepared + `', format('%L, user %s', gid, owner), extract(epoch FROM clock_timestamp() - prepared), age(transaction)
		  FROM pg_prepared_xacts WHERE database = current_database()
		UNION ALL
		SELECT x.catalogs, '` + ofSlot + `', format('%L, %s, %s', slot_name, slot_type, CASE WHEN active THEN 'active' ELSE 'inactive' END),
		       NULL, age(x.id)
		  FROM pg_replication_slots CROSS JOIN LATERAL (VALUES (false, xmin), (true, catalog_xmin)) x (catalogs, id) WHERE x.id IS NOT NULL
	)
	SELECT DISTINCT ON (h.catalogs) h.catalogs, h.kind, h.held_by, h.seconds::float8, h.transactions,
	       (SELECT coalesce(sum(pg_stat_get_dead_tuples(c.oid)), 0)::bigint FROM pg_class c
	         WHERE c.relkind = 'r' AND starts_with(c.relname, 'dblock_')
	           AND c.relnamespace = (SELECT l.relnamespace FROM pg_class l WHERE l.oid = to_regclass('dblock_locks')))
	  FROM held h ORDER BY h.catalogs, h.transactions DESC, h.seconds DESC NULLS LAST`

// snapshots returns the oldest snapshots of PostgreSQL, and none on another engine.
func (d database) snapshots(ctx context.Context) (all []snapshot, err error) {
	if d.engine != migrate.Postgres {
		return nil, nil
	}
	rows, err := d.QueryContext(ctx, oldestSnapshots)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s snapshot
		var seconds sql.NullFloat64
		err := rows.Scan(&s.CatalogsOnly, &s.Kind, &s.HeldBy, &seconds, &s.Transactions, &s.Versions)
		if err != nil {
			return nil, err
		}
		s.Age = time.Duration(seconds.Float64 * float64(time.Second))
		all = append(all, s)
	}
	return all, rows.Err()
}

// old reports whether VACUUM has kept row versions for too long, or too many of dblock's.
func (s snapshot) old(older time.Duration) bool {
	return s.Age > older || s.Transactions >= manyTransactions ||
		!s.CatalogsOnly && min(s.Versions, s.Transactions) >= manyVersions
}

// String names what holds the snapshot, and since when.
func (s snapshot) String() string {
	text := fmt.Sprintf("the %s (%s), %d transactions old", s.Kind, s.HeldBy, s.Transactions)
	switch {
	case s.Age > 0:
		text += ", open for " + span(s.Age)
	case s.Kind == ofTransaction: // each has a start
		text += ", open for a time that is hidden from this user (GRANT pg_read_all_stats TO it)"
	}
	return text
}

// harm says which row versions VACUUM keeps.
func (s snapshot) harm() string {
	if s.CatalogsOnly {
		return "VACUUM keeps the newer versions in the system catalogs"
	}
	return fmt.Sprintf("VACUUM keeps all newer row versions; dblock's tables have %d dead ones", s.Versions)
}

// postgresVacuum names the oldest snapshots. Those of a standby are its primary's matter.
func postgresVacuum(ctx context.Context, e *examination) ([]finding, error) {
	if e.standby {
		return found(fine("the server is a standby: snapshots show on the primary"))
	}
	all, err := e.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return found(fine("no other transaction, slot or standby has a snapshot"))
	}
	var made []finding
	for _, s := range all {
		is := fmt.Sprintf("the oldest snapshot is that of %v. %s", s, s.harm())
		if s.old(e.older) {
			made = append(made, note(is, remedies[s.Kind]))
		} else {
			made = append(made, fine(is))
		}
	}
	return made, nil
}
