//go:build unix

package fault

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The database's own record of the attempts that queued, left and were granted. For each name its
// order is the commit order, because its writers lock the name's row. SQLite does not number its
// transactions: there each begins with a write of the name's row.
const auditTable = `CREATE TABLE audit (id %s, what varchar(8) NOT NULL, name varchar(64) NOT NULL, ticket bigint, attempt varchar(32) NOT NULL, session varchar(32) NOT NULL, token bigint, alive integer, tx bigint%s)`

const (
	insertWrite = `INSERT INTO audit (what, name, attempt, session) VALUES ('write', NEW.name, '', '');`
	insertJoin  = `INSERT INTO audit (what, name, ticket, attempt, session) VALUES ('join', NEW.name, NEW.ticket, NEW.attempt, NEW.session_id);`
	insertLeave = `INSERT INTO audit (what, name, ticket, attempt, session, alive) VALUES ('leave', OLD.name, OLD.ticket, OLD.attempt, OLD.session_id,
	(SELECT count(*) FROM dblock_heartbeats h JOIN dblock_sessions s ON s.id = h.session_id WHERE h.session_id = OLD.session_id AND NOT s.dead AND h.expires_at > %s));`
	insertGrant = `INSERT INTO audit (what, name, attempt, session, token) VALUES ('grant', NEW.name, NEW.attempt, NEW.session_id, NEW.first_token);`
	insertShare = `INSERT INTO audit (what, name, attempt, session, token) VALUES ('grant', NEW.name, NEW.attempt, NEW.session_id, NEW.token);`
)

// audit makes the database keep its record.
func (w *world) audit() {
	w.Helper()
	leave := fmt.Sprintf(insertLeave, w.now())
	switch w.db.Kind {
	case dbtest.KindPostgres:
		w.exec(fmt.Sprintf(auditTable, "bigserial PRIMARY KEY", " DEFAULT txid_current()"))
		for name, trigger := range map[string][2]string{
			"dblock_audit_join":  {insertJoin, "AFTER INSERT ON dblock_waiters FOR EACH ROW"},
			"dblock_audit_leave": {leave, "AFTER DELETE ON dblock_waiters FOR EACH ROW"},
			"dblock_audit_share": {insertShare, "AFTER INSERT ON dblock_shares FOR EACH ROW"},
			"dblock_audit_first_grant": {insertGrant,
				"AFTER INSERT ON dblock_locks FOR EACH ROW WHEN (NEW.session_id IS NOT NULL)"},
			"dblock_audit_grant": {insertGrant,
				"AFTER UPDATE ON dblock_locks FOR EACH ROW WHEN (NEW.session_id IS NOT NULL AND NEW.attempt <> " +
					"OLD.attempt)"},
		} {
			w.exec(fmt.Sprintf("CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s RETURN NULL; "+
				"END $$", name, trigger[0]))
			w.exec(fmt.Sprintf("CREATE TRIGGER %s %s EXECUTE FUNCTION %[1]s()", name, trigger[1]))
		}
	case dbtest.KindSQLite:
		w.exec(fmt.Sprintf(auditTable, "integer PRIMARY KEY", ""))
		for _, trigger := range []string{
			"dblock_audit_write BEFORE UPDATE ON dblock_locks BEGIN " + insertWrite + " END",
			"dblock_audit_first_write BEFORE INSERT ON dblock_locks BEGIN " + insertWrite + " END",
			"dblock_audit_join AFTER INSERT ON dblock_waiters BEGIN " + insertJoin + " END",
			"dblock_audit_leave AFTER DELETE ON dblock_waiters BEGIN " + leave + " END",
			"dblock_audit_share AFTER INSERT ON dblock_shares BEGIN " + insertShare + " END",
			"dblock_audit_first_grant AFTER INSERT ON dblock_locks WHEN NEW.session_id IS NOT NULL BEGIN " +
				insertGrant + " END",
			"dblock_audit_grant AFTER UPDATE ON dblock_locks WHEN NEW.session_id IS NOT NULL AND NEW.attempt <> " +
				"OLD.attempt BEGIN " + insertGrant + " END",
		} {
			w.exec("CREATE TRIGGER " + trigger)
		}
	default:
		// Any trigger resets the insert id, in which MySQL's engine returns tokens and tickets.
		// There the actors report what they see of their own places.
	}
}

// records reports whether the database keeps a record.
func (w *world) records() bool {
	return w.db.Kind == dbtest.KindPostgres || w.db.Kind == dbtest.KindSQLite
}

// place is one attempt's time in a queue.
type place struct {
	attempt, session string
	ticket           int64
	joined, left     int64 // ids of the record; 0: not yet
	alive            bool  // its session lived when it left
	granted          int64 // id; 0: it was not
	token            int64
}

// entry is a line of the database's record.
type entry struct {
	id, ticket, token            int64
	tx                           int64 // the same for all of a name in one transaction
	what, name, attempt, session string
	alive                        bool
}

// recorded returns the record, numbered anew. Of one transaction it has no order: an engine writes
// what several requests of a name changed once, table by table. In the order of the requests all
// places that are left, and all grants, come before the places that still stand.
func (w *world) recorded() (all []entry) {
	w.Helper()
	rows, err := w.sql.QueryContext(w.Context(),
		"SELECT id, what, name, COALESCE(ticket, 0), attempt, session, COALESCE(token, 0), COALESCE(alive, 0), "+
			"COALESCE(tx, 0) FROM audit ORDER BY id")
	require.NoError(w, err)
	defer rows.Close()
	type transaction struct {
		name string
		tx   int64
	}
	writes := map[string]int64{}     // of SQLite, the last of a name
	began := map[transaction]int64{} // the id of its first entry
	for rows.Next() {
		var r entry
		require.NoError(w, rows.Scan(&r.id, &r.what, &r.name, &r.ticket, &r.attempt, &r.session, &r.token, &r.alive,
			&r.tx))
		if r.what == "write" {
			writes[r.name] = r.id
			continue
		}
		of := transaction{r.name, cmp.Or(r.tx, writes[r.name])}
		if began[of] == 0 {
			began[of] = r.id
		}
		r.tx = began[of]
		all = append(all, r)
	}
	require.NoError(w, rows.Err())
	turns := []string{"leave", "grant", "join"}
	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.tx, b.tx), cmp.Compare(slices.Index(turns, a.what), slices.Index(turns, b.what)))
	})
	for i := range all {
		all[i].id = int64(i + 1)
	}
	return all
}

// unfair returns the grants that were not in the order of the queue. leaves has the attempts that
// left of their own will. Their places may be passed over from then on, and so may those of expired
// sessions.
func (w *world) unfair(leaves map[string]bool) (found []string) {
	w.Helper()
	if !w.records() {
		return nil
	}
	queues := map[string][]*place{}
	places := map[string]*place{}
	type last struct{ token, tx int64 }
	tokens, grants := map[string]last{}, map[string]int64{}
	holder := map[string]string{} // the session of the latest grant
	used := map[string]int64{}    // the last time that a session did something, which a dead one does not
	direct := map[int64]string{}
	for _, r := range w.recorded() {
		id, name, attempt, session, token := r.id, r.name, r.attempt, r.session, r.token
		p := places[attempt]
		switch r.what {
		case "join":
			p = &place{attempt: attempt, session: session, ticket: r.ticket, joined: id}
			q, at := queues[name], len(queues[name])
			if at > 0 && r.ticket <= q[at-1].ticket {
				// Right only of those behind a member that was detached, who stand before all
				// that still wait, perhaps with the ticket that their cohort had.
				ahead := func(p *place) bool { return p.left == 0 && p.ticket <= r.ticket }
				if session != holder[name] || slices.ContainsFunc(q, ahead) {
					found = append(found, fmt.Sprintf("%s: ticket %d after %d", name, r.ticket, q[at-1].ticket))
				}
				if i := slices.IndexFunc(q, func(p *place) bool { return p.ticket > r.ticket }); i >= 0 {
					at = i
				}
			}
			places[attempt], queues[name] = p, slices.Insert(q, at, p)
			used[session] = id
		case "leave":
			p.left, p.alive = id, r.alive
		case "grant":
			holder[name] = session
			if grants[attempt] == token {
				continue // a writer became a reader
			}
			l := tokens[name]
			if token <= l.token && l.tx != r.tx { // of several in one transaction the record has no order
				found = append(found, fmt.Sprintf("%s: token %d after %d", name, token, l.token))
			}
			tokens[name] = last{max(token, l.token), r.tx}
			before := grants[attempt]
			grants[attempt] = token
			if before != 0 {
				continue // a reader became a writer, without a place in the queue
			}
			if p != nil {
				p.granted, p.token = id, token
			} else {
				direct[id] = name
				used[session] = id
			}
		}
	}
	for name, queue := range queues {
		for i, p := range queue {
			if p.granted == 0 {
				continue
			}
			for _, before := range queue[:i] {
				if problem := before.passedOver(p, leaves, used); problem != "" {
					found = append(found, fmt.Sprintf("%s: ticket %d was granted before ticket %d, which %s", name,
						p.ticket, before.ticket, problem))
				}
			}
		}
	}
	for id, name := range direct {
		for _, p := range queues[name] {
			if p.joined < id && (p.left == 0 || p.left > id) {
				found = append(found, fmt.Sprintf("%s: granted to somebody from outside while ticket %d stood in "+
					"the queue", name, p.ticket))
			}
		}
	}
	return found
}

// unfairAsTold is unfair without the database's record, by the tickets and tokens that the actors
// saw.
func unfairAsTold(actors []*process, leaves map[string]bool) (found []string) {
	type told struct {
		event
		token int64
		order time.Duration
	}
	queues := map[string][]*told{}
	places := map[string]*told{}
	used := map[string]time.Duration{} // before that a session cannot have died: it joined a queue later
	for _, p := range actors {
		for _, e := range p.all() {
			switch e.What {
			case evQueued:
				t := &told{event: e}
				places[e.Attempt], queues[e.Name] = t, append(queues[e.Name], t)
				used[e.Session] = e.At
			case evGranted:
				if t := places[e.Attempt]; t != nil && t.token == 0 {
					t.token, t.order = e.Token, e.At
				}
			}
		}
	}
	for name, queue := range queues {
		slices.SortFunc(queue, func(a, b *told) int { return cmp.Compare(a.Ticket, b.Ticket) })
		for i, t := range queue {
			for _, before := range queue[:i] {
				switch {
				case t.token == 0:
				case before.token > t.token:
					found = append(found, fmt.Sprintf("%s: ticket %d was granted before ticket %d", name, t.Ticket,
						before.Ticket))
				case before.token == 0 && !leaves[before.Attempt] && used[before.Session] > t.order:
					found = append(found, fmt.Sprintf("%s: ticket %d was granted before ticket %d, which was "+
						"dropped although its session lived", name, t.Ticket, before.Ticket))
				}
			}
		}
	}
	return found
}

// passedOver returns why a place should have been served before another, or "".
func (p *place) passedOver(by *place, leaves map[string]bool, used map[string]int64) string {
	switch {
	case p.granted != 0 && p.token < by.token:
		return ""
	case p.granted != 0:
		return "was granted later"
	case p.left == 0:
		return "still stands there"
	case leaves[p.attempt] && p.left < by.granted:
		return "" // of its own will, before
	case p.alive && used[p.session] > p.left: // a session that expired at this moment joins no queue again
		return "was dropped although its session lived"
	}
	return ""
}
