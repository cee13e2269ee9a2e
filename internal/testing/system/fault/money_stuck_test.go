//go:build unix

package fault

import (
	"database/sql"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// locked are the names that tables lock.
func (b *bank) locked() (names []string) {
	for id := range accounts {
		if book := books[schemeLockTx]; slices.Contains(b.books(), book) {
			names = append(names, fmt.Sprintf("%s/%02d", book, id))
		}
	}
	return names
}

// close ends half of the processes in good order, and kills the others.
func (b *bank) close() {
	b.Helper()
	ops := make([]int, len(b.running))
	for i, c := range b.running {
		if i%2 == 0 {
			ops[i] = c.send(command{Verb: "exit"})
		}
	}
	for i, c := range b.running {
		if i%2 == 1 {
			c.kill()
		} else if e := c.await(ops[i], evDone); e.is(kindUnavailable) {
			b.Logf("%s: exit: %s", c.label, e.Err) // it expires, and must not be stuck
		} else if e.Err != "" {
			b.find(stuck, "%s: exit: %s", c.label, e.Err)
		}
	}
	for _, c := range b.running {
		<-c.ended
	}
}

// nothingIsStuck takes each name at once when the dead processes' time is over, and looks for what
// is left in the server.
func (b *bank) nothingIsStuck() {
	b.Helper()
	if names := b.locked(); len(names) > 0 {
		b.allFree(names)
		b.freeForTransactions(names)
		b.nothingIsLeft()
	}
	b.nativesAreFree()
	for what, query := range b.leftovers() {
		if query != "" && !within(patience, func() bool { return b.count("%s", query) == 0 }) {
			b.find(stuck, "%d %s", b.count("%s", query), what)
		}
	}
}

// freeForTransactions takes all names in one transaction, which waits only for its own client's
// reaper.
func (b *bank) freeForTransactions(names []string) {
	b.Helper()
	d, err := sqlDesk(actorConfig{Kind: b.db.Kind, DSN: b.db.DSN, TTL: ttl})
	require.NoError(b, err)
	if !within(patience, func() bool {
		err = d.within(b.Context(), func(tx *sql.Tx) error { return d.client.TryLockTx(b.Context(), tx, names...) })
		return err == nil
	}) {
		b.find(stuck, "%v", err)
	}
	if err := d.close(); err != nil {
		b.find(stuck, "%v", err)
	}
}

// leftovers are queries for rows and locks without an owner.
func (b *bank) leftovers() map[string]string {
	switch b.db.Kind {
	case dbtest.KindPostgres:
		return map[string]string{
			"advisory locks": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid " +
				"FROM pg_database WHERE datname = current_database())",
			"connections": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND " +
				"backend_type = 'client backend' AND pid <> pg_backend_pid()",
		}
	case dbtest.KindMySQL, dbtest.KindMariaDB:
		left := map[string]string{"connections": "SELECT count(*) FROM " + b.db.Processes() +
			" WHERE db = database() AND id <> connection_id()"}
		if b.db.Kind == dbtest.KindMySQL { // of MariaDB it is known by the connections: such a lock dies with its own
			left["user-level locks"] = "SELECT count(*) FROM performance_schema.metadata_locks JOIN " +
				"performance_schema.threads ON thread_id = owner_thread_id WHERE object_type = 'USER LEVEL LOCK' " +
				"AND processlist_db = database()"
		}
		return left
	}
	return nil
}

// nativesAreFree takes each of the server's own locks, which nothing has to expire for.
func (b *bank) nativesAreFree() {
	b.Helper()
	var names []string
	if b.schemes[schemeAdvisory] > 0 {
		names = append(names, till)
		for id := range accounts {
			names = append(names, fmt.Sprintf("%s/%02d", books[schemeAdvisory], id))
		}
	}
	if b.schemes[schemeSession] > 0 {
		for i := range sessionNames {
			names = append(names, sessionName(b.realm, i))
		}
	}
	config := actorConfig{Kind: b.db.Kind, DSN: b.db.DSN, TTL: ttl}
	switch {
	case len(names) == 0:
	case b.db.Kind == dbtest.KindPostgres:
		d, err := pgxDesk(config)
		require.NoError(b, err)
		takeAll(b, d, names)
	default:
		d, err := sqlDesk(config)
		require.NoError(b, err)
		takeAll(b, d, names)
	}
}

func takeAll[TX any](b *bank, d *desk[TX], names []string) {
	b.Helper()
	for _, name := range names {
		var l dblock.Handle
		var err error
		if !within(patience, func() bool {
			l, err = d.native.TryLock(b.Context(), name)
			return err == nil
		}) {
			b.find(stuck, "%s: %v", name, err)
			continue
		}
		if err := l.Unlock(b.Context()); err != nil {
			b.find(stuck, "%s: unlock: %v", name, err)
		}
	}
	if err := d.close(); err != nil {
		b.find(stuck, "%v", err)
	}
}
