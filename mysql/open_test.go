package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/fakedb"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// scripted is a server that has a version. It notes the statements of a transaction, and refuses
// those that have a text of fails.
type scripted struct {
	version string
	open    int64 // what the variable of the server says
	fails   map[string]uint16
	sent    []string
}

func (c *scripted) exec(_ *fakedb.Session, text string) error {
	c.sent = append(c.sent, text)
	for of, number := range c.fails {
		if strings.Contains(text, of) {
			return &mysql.MySQLError{Number: number}
		}
	}
	return nil
}

func (c *scripted) query(on *fakedb.Session, text string) ([]sqldriver.Value, error) {
	if strings.Contains(text, "VERSION()") {
		return []sqldriver.Value{c.version}, c.exec(on, text)
	}
	return []sqldriver.Value{c.open}, c.exec(on, text)
}

// stepsOn runs each step in a transaction of the connection. On another one the step reads nothing.
func stepsOn(t *testing.T, c *scripted) map[string]func() error {
	pool := sql.OpenDB(&fakedb.Server{Query: c.query, Exec: c.exec, Unprepared: true})
	t.Cleanup(func() { _ = pool.Close() })
	e := inside.Of(New(pool, Database("d"))).Backend.(*engine)
	e.info.Store(&serverInfo{})
	tx, err := pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	in, held := inTx{e, tx}, protocol.Held{Name: "n", Session: "s", Token: 1}
	beside := func(context.Context, func(context.Context, driver.Upkeep) error) error { return nil }
	lock := func(wait bool) func() error {
		return func() error {
			_, locked, err := in.Lock(t.Context(), "n", nil, wait, beside)
			if err == nil && locked {
				t.Error("a name that is not free is locked")
			}
			return err
		}
	}
	return map[string]func() error{
		"LockTx": lock(true), "TryLockTx": lock(false),
		"Guard": func() error { return in.Guard(t.Context(), held, beside) },
		"UnlockTx": func() error {
			return in.Release(t.Context(), held, protocol.Detachment{}, beside)
		},
	}
}

// Broken by a step that locks or writes before the proof that its transaction is open, or without
// it.
func TestATransactionThatIsNotOpenIsSentNothingButTheProof(t *testing.T) {
	const savepoint, released = "SAVEPOINT dblock_open", "RELEASE SAVEPOINT dblock_open"
	for version, proof := range map[string][]string{
		"9.7.0":              {savepoint, released},
		"8.0.30-Vitess":      {savepoint, released},
		"11.8.9-MariaDB":     {"SELECT @@in_transaction <> 0"},
		"8.0.11-TiDB-v8.5.0": {"SELECT @@tidb_current_ts <> 0"},
	} {
		c := &scripted{version: version, fails: map[string]uint16{released: 1305}}
		first := []string{"SELECT VERSION()"}
		for what, step := range stepsOn(t, c) {
			assert.ErrorIs(t, step(), driver.ErrTxDone, what, "on", version)
			if want := slices.Concat(first, proof); !slices.Equal(c.sent, want) {
				t.Errorf("%s on %s: sent %q, want %q", what, version, c.sent, want)
			}
			first, c.sent = nil, nil
		}
	}
}

// Broken by a statement after a deadlock: it would commit by itself.
func TestADeadlockIsTheLastThingThatATransactionIsSent(t *testing.T) {
	for _, number := range []uint16{1213, 1020} {
		c := &scripted{version: "11.8.9-MariaDB", open: 1, fails: map[string]uint16{".dblock_": number}}
		step := stepsOn(t, c)["UnlockTx"]
		err := step()
		assert.ErrorIs(t, err, driver.ErrRetry)
		assert.ErrorIs(t, err, driver.ErrRolledBack)
		if n := len(c.sent); n != 3 || !strings.Contains(c.sent[n-1], "FOR UPDATE") {
			t.Errorf("sent %q, want nothing after the row lock", c.sent)
		}
	}
}

func TestANapIsShorterThanTheReadTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: longestNap, time.Minute: longestNap, 6 * time.Second: longestNap, 3 * time.Second: 2 * time.Second,
		600 * time.Millisecond: 400 * time.Millisecond,
	} {
		assert.Equal(t, napWithin(timeout), want, "a read times out after", timeout, "it sleeps")
	}
}

func TestAListIsWholeWhereverItsEndMarkStands(t *testing.T) {
	for _, rows := range [][]string{{"a", "b", ""}, {"", "a", "b"}, {"a", "", "b"}} {
		list, err := whole(slices.Clone(rows), nil, func(row string) bool { return row == "" })
		assert.NoError(t, err, rows)
		assert.Equal(t, len(list), 2, rows)
		assert.Equal(t, list[0]+list[1], "ab", rows)
	}
	_, err := whole([]string{"a", "b"}, nil, func(row string) bool { return row == "" })
	assert.Error(t, err, "a list without its end mark")
}
