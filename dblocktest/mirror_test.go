package dblocktest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/memory"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/slots"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// mirror is a database in memory that can be seen, and changed, in tables of SQLite.
type mirror struct {
	*database
	t  testing.TB
	tx *sql.Tx
}

// through shows the tables while do runs, and takes over what do has changed.
func (d *database) through(t testing.TB, look *sql.DB, change bool, do func()) {
	t.Helper()
	d.Mu.Lock()
	defer d.Mu.Unlock()
	m := &mirror{database: d, t: t}
	m.in(look, m.write)
	do()
	if change {
		m.in(look, m.read)
	}
}

func (m *mirror) in(look *sql.DB, f func()) {
	m.t.Helper()
	tx, err := look.Begin()
	require.NoError(m.t, err)
	defer func() { _ = tx.Commit() }()
	m.tx = tx
	f()
}

func (m *mirror) write() {
	for _, table := range []string{"sessions", "heartbeats", "locks", "shares", "waiters", "watchers", "events",
		"runs"} {
		m.exec("DELETE FROM dblock_" + table)
	}
	for _, s := range m.SessionRows {
		m.insert("sessions (id, host, pid, app, started_at, dead)", s.ID, s.Host, s.PID, s.App, s.Started, s.Dead)
		if !s.Dead && s.Expires > 0 {
			m.insert("heartbeats (session_id, expires_at)", s.ID, s.Expires)
		}
	}
	for _, name := range m.Locks.All() {
		row, _ := m.Locks.Row(name)
		m.insert(`locks (name, session_id, host, thread, attempt, token, acquired_at, expires_at, waiters, next_ticket, metadata,
			shared_units, capacity, mixed, rests_until, asked, first_token, last_token)`,
			name, sql.NullString{String: row.Session, Valid: row.Session != ""}, row.Host, row.Thread, row.Attempt,
			row.Token, row.Since,
			orNull(row.Ends), row.Waiters, row.Next, row.Metadata, row.Units, row.Capacity, row.Mixed, row.Rests,
			row.Asked, row.First, row.Last)
		for _, s := range m.Locks.Shares(name) {
			m.insert("shares (name, token, session_id, host, thread, attempt, units, capacity, acquired_at, "+
				"expires_at, metadata, asked)",
				name, s.Token, s.Session, s.Host, s.Thread, s.Attempt, s.Units, s.Of, s.Since, orNull(s.Ends),
				s.Metadata, s.Asked)
		}
		for _, p := range m.Locks.Places(name) {
			m.insert("waiters (name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, "+
				"units, capacity, min_hold, members)",
				name, p.Ticket, p.Session, p.Host, p.Thread, p.Attempt, p.Lease.Microseconds(), p.Metadata, p.Since,
				p.Units, p.Of, p.MinHold.Microseconds(), max(p.Members, 1))
		}
	}
	for name, watches := range m.WatchRows {
		for watch, session := range watches {
			m.insert("watchers (name, watch, session_id)", name, watch, session)
		}
	}
	for _, e := range m.EventRows {
		m.insert("events (id, at, name, kind, token, session_id, host, thread, detail, metadata)",
			e.ID, e.At.UnixMicro(), e.Name, e.Kind, e.Token, e.Session, e.Host, e.Thread, e.Detail, e.Metadata)
	}
	for _, runs := range m.RunRows {
		for _, r := range runs {
			m.insert("runs (name, slot, token, session_id, host, thread, began_at, ended_at, failed, detail, tries, "+
				"slot_ends)",
				r.Name, r.Slot, r.Token, r.SessionID, r.Host, r.Thread, r.BeganAt, orNull(r.EndedAt), r.Failed,
				r.Detail, r.Tries, r.SlotEnds)
		}
	}
}

func (m *mirror) read() {
	ttls := map[string]time.Duration{}
	for id, s := range m.SessionRows {
		ttls[id] = s.TTL
	}
	clear(m.SessionRows)
	m.rows(`SELECT s.id, s.host, s.pid, s.app, s.Started_at, s.Dead, COALESCE(h.expires_at, 0)
		FROM dblock_sessions s LEFT JOIN dblock_heartbeats h ON h.session_id = s.id`, func(scan func(...any)) {
		s := &memory.SessionRow{}
		scan(&s.ID, &s.Host, &s.PID, &s.App, &s.Started, &s.Dead, &s.Expires)
		s.TTL = ttls[s.ID]
		m.SessionRows[s.ID] = s
	})
	rows, shares, places := map[string]protocol.Row{}, map[string][]protocol.Share{}, map[string][]protocol.Place{}
	m.rows(`SELECT name, COALESCE(session_id, ''), host, thread, attempt, token, acquired_at, COALESCE(expires_at, 0), waiters, next_ticket,
		metadata, shared_units, capacity, mixed, rests_until, asked, first_token, last_token FROM dblock_locks`, func(scan func(...any)) {
		r := protocol.Row{Head: 1}
		scan(&r.Name, &r.Session, &r.Host, &r.Thread, &r.Attempt, &r.Token, &r.Since, &r.Ends, &r.Waiters, &r.Next,
			&r.Metadata, &r.Units, &r.Capacity, &r.Mixed, &r.Rests, &r.Asked, &r.First, &r.Last)
		rows[r.Name] = r
	})
	m.rows(`SELECT name, token, session_id, host, thread, attempt, units, capacity, acquired_at, COALESCE(expires_at, 0), metadata, asked
		FROM dblock_shares`, func(scan func(...any)) {
		s, name := protocol.Share{}, ""
		scan(&name, &s.Token, &s.Session, &s.Host, &s.Thread, &s.Attempt, &s.Units, &s.Of, &s.Since, &s.Ends,
			&s.Metadata, &s.Asked)
		shares[name] = append(shares[name], s)
	})
	m.rows(`SELECT name, ticket, session_id, host, thread, attempt, lease, metadata, enqueued_at, units, capacity, min_hold, members
		FROM dblock_waiters`, func(scan func(...any)) {
		p, lease, rest := protocol.Place{}, int64(0), int64(0)
		scan(&p.Name, &p.Ticket, &p.Session, &p.Host, &p.Thread, &p.Attempt, &lease, &p.Metadata, &p.Since, &p.Units,
			&p.Of, &rest, &p.Members)
		p.Lease, p.MinHold = time.Duration(lease)*time.Microsecond, time.Duration(rest)*time.Microsecond
		places[p.Name] = append(places[p.Name], p)
	})
	for _, name := range m.Locks.All() {
		m.Locks.Delete(name)
	}
	for name, row := range rows {
		m.Locks.Put(row, places[name], shares[name])
	}
	clear(m.WatchRows)
	m.rows("SELECT name, watch, session_id FROM dblock_watchers", func(scan func(...any)) {
		var is, watch, session string
		scan(&is, &watch, &session)
		if m.WatchRows[is] == nil {
			m.WatchRows[is] = map[string]string{}
		}
		m.WatchRows[is][watch] = session
	})
	m.EventRows = nil
	m.rows(
		"SELECT id, at, name, kind, token, session_id, host, thread, detail, metadata FROM dblock_events ORDER BY id",
		func(scan func(...any)) {
			var e protocol.Event
			var at int64
			scan(&e.ID, &at, &e.Name, &e.Kind, &e.Token, &e.Session, &e.Host, &e.Thread, &e.Detail, &e.Metadata)
			e.At = time.UnixMicro(at)
			m.EventRows = append(m.EventRows, e)
		})
	clear(m.RunRows)
	m.rows(`SELECT name, slot, token, session_id, host, thread, began_at, COALESCE(ended_at, 0), failed, detail, tries, slot_ends
		FROM dblock_runs`, func(scan func(...any)) {
		r := &slots.Row{}
		scan(&r.Name, &r.Slot, &r.Token, &r.SessionID, &r.Host, &r.Thread, &r.BeganAt, &r.EndedAt, &r.Failed, &r.Detail,
			&r.Tries, &r.SlotEnds)
		m.RunRows[r.Name] = append(m.RunRows[r.Name], r)
	})
}

func (m *mirror) exec(statement string, args ...any) {
	m.t.Helper()
	require.NoError(m.t, require.ErrOf(m.tx.Exec(statement, args...)), statement)
}

func (m *mirror) insert(into string, values ...any) {
	m.t.Helper()
	m.exec(fmt.Sprintf("INSERT INTO dblock_%s VALUES (%s)", into, strings.TrimSuffix(strings.Repeat("?, ", len(values)),
		", ")), values...)
}

func (m *mirror) rows(query string, each func(scan func(...any))) {
	m.t.Helper()
	rows, err := m.tx.Query(query)
	require.NoError(m.t, err)
	defer rows.Close()
	for rows.Next() {
		each(func(into ...any) {
			m.t.Helper()
			require.NoError(m.t, rows.Scan(into...))
		})
	}
	require.NoError(m.t, rows.Err())
}

func orNull(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}
