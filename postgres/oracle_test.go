package postgres

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/drivertest"
	"github.com/dblock-go/dblock/internal/testing/oracle"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/internal/testing/swallow"
	"github.com/dblock-go/dblock/internal/transaction"
)

// The engine leaves the rows that package protocol leaves in memory, by the short ways and by the
// general way.
func TestTheEngineDoesWhatTheProtocolDoes(t *testing.T) {
	db := dbtest.Warm(t, dbtest.KindPostgres)
	for name, backend := range map[string]driver.Backend{
		"pgx": inside.Of(New(db.Pool(t))).Backend,
		"sql": inside.Of(NewSQL(db.SQL(t))).Backend,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { oracle.Compare(t, backend, seed, 200) })
			}
		})
	}
}

// A write that the database answers without having done it is an error, whichever it is, and
// nothing is done by halves.
func TestAWriteThatDidNothingIsNotBelieved(t *testing.T) {
	db := dbtest.Warm(t, dbtest.KindPostgres)
	var statements swallow.Statements
	pool := statements.Pool(swallow.Connector(db.SQL(t).Driver(), db.DSN))
	t.Cleanup(func() { _ = pool.Close() })
	swallowing := &oracle.Swallowing{
		Engine: inside.Of(NewSQL(pool)).Backend, Statements: &statements, Unproven: transaction.ErrSwallowed,
		Count: map[string]int{},
		Spare: func(text string) bool { return !transaction.MustAct(text) },
	}
	swallowing.Compare(t, 1, 250, "WriteName", "PutPlaces", "DropPlaces", "PutShares", "DropShares", "AddEvent")
}

// The same where the COMMIT travels with the write: then the server is to find it out.
func TestATriggerThatSwallowsAWriteIsFoundOut(t *testing.T) {
	db := dbtest.Warm(t, dbtest.KindPostgres)
	look := db.SQL(t)
	for name, backend := range map[string]driver.Backend{
		"pgx": inside.Of(New(db.Pool(t))).Backend, "sql": inside.Of(NewSQL(look)).Backend,
	} {
		exec := func(text string) {
			t.Helper()
			require.NoError(t, require.ErrOf(look.ExecContext(t.Context(), text)))
		}
		session := driver.Session{ID: "session of " + name, TTL: time.Hour}
		require.NoError(t, backend.OpenSession(t.Context(), session))
		exec("CREATE OR REPLACE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
		for table, events := range map[string]string{"dblock_locks": "UPDATE", "dblock_shares": "INSERT"} {
			r := protocol.Request{Name: name + table, Session: session.ID, Attempt: name + table, Units: 1, Of: 2}
			exec("CREATE TRIGGER swallow BEFORE " + events + " ON " + table +
				" FOR EACH ROW EXECUTE FUNCTION swallow()")
			_, err := backend.Run(t.Context(), drivertest.General{Op: protocol.Take{Request: r}})
			exec("DROP TRIGGER swallow ON " + table)
			var units int
			if err := look.QueryRowContext(t.Context(),
				"SELECT shared_units + (SELECT count(*) FROM dblock_shares) FROM dblock_locks WHERE name = $1",
				r.Name).Scan(&units); err != nil && !errors.Is(err, sql.ErrNoRows) {
				t.Fatal(err)
			}
			if !errors.Is(err, transaction.ErrSwallowed) || units != 0 {
				t.Errorf("%s without %s of %s: %v, and %d units and shares are left", name, events, table, err, units)
			}
		}
	}
}
