package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/migrate"
)

const (
	// longOpen is the age from which on a snapshot is old.
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
	Age          time.Duration // 0: not known
	Transactions int64         // begun on the server since
	Versions     int64         // dead row versions in dblock's tables, whatever keeps them
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

// oldest selects the oldest snapshot for which VACUUM keeps versions of dblock's tables. VACUUM
// leaves transactions of other databases and other VACUUMs out of account. A user without
// pg_read_all_stats sees the snapshots of other users, but not their state and times.
const oldest = `
	WITH held AS (
		SELECT CASE WHEN r.pid IS NULL THEN '` + ofTransaction + `' ELSE '` + ofStandby + `' END AS kind,
		       concat_ws(', ', 'pid ' || a.pid, 'user ' || a.usename, nullif(a.application_name, ''), a.state) AS held_by,
		       extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds,
		       greatest(age(a.backend_xid), age(a.backend_xmin)) AS transactions
		  FROM pg_stat_activity a LEFT JOIN pg_stat_replication r USING (pid)
		 WHERE coalesce(a.backend_xid, a.backend_xmin) IS NOT NULL AND a.pid <> pg_backend_pid()
		   AND (r.pid IS NOT NULL OR a.datname = current_database())
		   AND a.pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v)
		UNION ALL
		SELECT '` + ofPrepared + `', format('%L, user %s', gid, owner), extract(epoch FROM clock_timestamp() - prepared), age(transaction)
		  FROM pg_prepared_xacts WHERE database = current_database()
		UNION ALL
		SELECT '` + ofSlot + `', format('%L, %s, %s', slot_name, slot_type, CASE WHEN active THEN 'active' ELSE 'inactive' END), NULL, age(xmin)
		  FROM pg_replication_slots WHERE xmin IS NOT NULL
	)
	SELECT h.kind, h.held_by, coalesce(h.seconds, 0)::float8, h.transactions,
	       (SELECT coalesce(sum(pg_stat_get_dead_tuples(c.oid)), 0)::bigint FROM pg_class c
	         WHERE c.relkind = 'r' AND starts_with(c.relname, 'dblock_')
	           AND c.relnamespace = (SELECT l.relnamespace FROM pg_class l WHERE l.oid = to_regclass('dblock_locks')))
	  FROM held h ORDER BY h.transactions DESC, h.seconds DESC NULLS LAST LIMIT 1`

// oldestSnapshot returns the oldest snapshot of PostgreSQL, and nil if there is none, or on another
// engine.
func (d database) oldestSnapshot(ctx context.Context) (*snapshot, error) {
	if d.engine != migrate.Postgres {
		return nil, nil
	}
	var s snapshot
	var seconds float64
	err := d.QueryRowContext(ctx, oldest).Scan(&s.Kind, &s.HeldBy, &seconds, &s.Transactions, &s.Versions)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	s.Age = time.Duration(seconds * float64(time.Second))
	return &s, err
}

// old reports whether VACUUM has kept row versions for too long, or too many of dblock's.
func (s snapshot) old() bool {
	return s.Age > longOpen || s.Transactions >= manyTransactions || min(s.Versions, s.Transactions) >= manyVersions
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
