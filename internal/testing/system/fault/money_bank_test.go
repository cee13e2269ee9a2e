//go:build unix

package fault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

const (
	tellers = 4         // processes at a time
	deposit = 1_000_000 // what each account begins with
	// slow is when the round looks why nothing goes on. That is no fault.
	slow = 10 * time.Second
)

// What is found wrong with a bank.
const (
	totals   = "total"       // money was made or destroyed
	updates  = "lost update" // an account is not what its transfers make it
	acks     = "lost transfer"
	comeback = "refused transfer" // it was rolled back, and is there
	wrongs   = "wrong"
	twice    = "held twice"
	stuck    = "stuck"
)

// bank is accounts, and processes that move money between them.
type bank struct {
	*world
	schemes map[string]int // with how many workers in each process
	realm   string
	dir     string
	running []*clerk
	all     []*clerk

	mu    sync.Mutex // protects what follows
	found map[string][]string
	looks int
}

// clerk is a process that moves money, as its parent sees it.
type clerk struct {
	*process
	journal string
	read    int64 // of the journal
	entries []entry
}

func newBank(w *world, schemes map[string]int) *bank {
	w.Helper()
	b := &bank{
		world: w, schemes: schemes, realm: fmt.Sprintf("%x", w.random.Uint64()),
		running: make([]*clerk, tellers), dir: w.TempDir(), found: map[string][]string{},
	}
	b.exec("CREATE TABLE accounts (book varchar(16) NOT NULL, id integer NOT NULL, balance bigint NOT NULL, PRIMARY " +
		"KEY (book, id))")
	b.exec("CREATE TABLE transfers (id varchar(64) PRIMARY KEY, book varchar(16) NOT NULL, source integer NOT NULL, " +
		"target integer NOT NULL, amount bigint NOT NULL)")
	for _, book := range b.books() {
		var rows []string
		for id := range accounts {
			rows = append(rows, fmt.Sprintf("('%s', %d, %d)", book, id, deposit))
		}
		b.exec("INSERT INTO accounts (book, id, balance) VALUES " + strings.Join(rows, ", "))
	}
	if b.schemes[schemeOptimistic] > 0 {
		require.NoError(b, migrate.Up(b.Context(), b.sql, b.db.Engine, migrate.Versions))
	}
	for i := range b.running {
		b.hire(i)
	}
	for _, c := range b.running {
		c.await(0, evReady)
	}
	return b
}

func (b *bank) books() (names []string) {
	for scheme := range b.schemes {
		if name := books[scheme]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// hire starts a process. On PostgreSQL every second one uses database/sql, which must make no
// difference to the locks; where there are locks for pgx alone, and no others, all use that.
func (b *bank) hire(i int) {
	b.Helper()
	label := fmt.Sprintf("teller %d", len(b.all))
	c := &clerk{journal: filepath.Join(b.dir, label)}
	require.NoError(b, os.WriteFile(c.journal, nil, 0o600))
	config := tellerConfig{
		Label: label, Journal: c.journal, Schemes: maps.Clone(b.schemes), Realm: b.realm, Bug: b.bug,
		Instant: 5 * time.Millisecond,
	}
	config.Native = i%2 == 0 || len(b.schemes) == 1 && b.schemes[schemeAdvisory]+b.schemes[schemeSession] > 0
	if b.db.Kind == dbtest.KindPostgres && !config.Native {
		delete(config.Schemes, schemeAdvisory)
		delete(config.Schemes, schemeSession)
	}
	if b.db.Kind == dbtest.KindSQLite { // a transaction locks out all other processes, and heartbeats as well
		config.Idle, config.Instant = time.Second, 0
	}
	c.process = launch(b.world, label, actorConfig{Kind: b.db.Kind, DSN: b.db.DSN, TTL: ttl, Seed: b.random.Uint64(),
		Teller: &config})
	b.running[i], b.all = c, append(b.all, c)
}

// catchUp reads what was written to the journal since the last time. The line that a process died
// in is no line.
func (c *clerk) catchUp() []entry {
	c.t.Helper()
	file, err := os.Open(c.journal)
	require.NoError(c.t, err)
	defer file.Close()
	info, err := file.Stat()
	require.NoError(c.t, err)
	text := make([]byte, info.Size()-c.read)
	if _, err := file.ReadAt(text, c.read); err != nil && len(text) > 0 {
		c.t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	c.read += int64(len(text))
	for line := range bytes.Lines(text) {
		var e entry
		require.NoError(c.t, json.Unmarshal(line, &e), c.label, line)
		c.entries = append(c.entries, e)
	}
	return c.entries
}

// done is when a process last had a transfer acknowledged, by scheme.
func (c *clerk) done() map[string]time.Duration {
	last := map[string]time.Duration{}
	for _, e := range c.catchUp() {
		if e.What == journalDone || e.What == journalHeld {
			last[e.Scheme] = e.At
		}
	}
	return last
}

func (b *bank) find(checker, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found[checker] = append(b.found[checker], fmt.Sprintf(format, args...))
}

// watch reads all accounts again and again, each time in one snapshot, until it is told to stop.
func (b *bank) watch() (stop func()) {
	b.Helper()
	db, done := b.db.SQL(b), make(chan struct{})
	var watching sync.WaitGroup
	look := func() error {
		rows, err := db.QueryContext(b.Context(), "SELECT book, sum(balance) FROM accounts GROUP BY book")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var book string
			var total int64
			if err := rows.Scan(&book, &total); err != nil {
				return err
			}
			if total != accounts*deposit {
				b.find(totals, "%s: %+d at %v", book, total-accounts*deposit, session.Boottime())
			}
		}
		return rows.Err()
	}
	watching.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if look() == nil { // an error is a fault that hit this connection
				b.looks++
			}
		}
	})
	stop = sync.OnceFunc(func() {
		close(done)
		watching.Wait()
		_ = db.Close()
	})
	b.Cleanup(stop)
	return stop
}

// goesOn waits until each process, and each scheme, has had a transfer acknowledged that a fault
// did not hinder.
func (b *bank) goesOn() {
	b.Helper()
	since := session.Boottime()
	behind := func() (names []string) {
		schemes := map[string]bool{}
		for _, c := range b.running {
			went := false
			for scheme, last := range c.done() {
				schemes[scheme] = schemes[scheme] || last > since
				went = went || last > since
			}
			if !went {
				names = append(names, c.label)
			}
		}
		for scheme := range b.schemes {
			if !schemes[scheme] {
				names = append(names, scheme)
			}
		}
		return names
	}
	all := func() bool { return len(behind()) == 0 }
	if !within(slow, all) {
		b.Logf("%v after the last fault nothing was acknowledged of %v", slow, behind())
		b.dump()
		if !within(patience, all) {
			b.Fatalf("%s: nothing was acknowledged of %v in %v", stuck, behind(), patience)
		}
	}
}

// check compares the books with the journals.
func (b *bank) check() {
	b.Helper()
	for _, book := range b.books() {
		if total := b.count("SELECT sum(balance) FROM accounts WHERE book = '%s'", book); total != accounts*deposit {
			b.find(totals, "%s: %+d in the end", book, total-accounts*deposit)
		}
		if n := b.count("SELECT count(*) FROM accounts a WHERE book = '%s' AND balance <> %d"+
			" + (SELECT COALESCE(sum(amount), 0) FROM transfers t WHERE t.book = a.book AND t.target = a.id)"+
			" - (SELECT COALESCE(sum(amount), 0) FROM transfers t WHERE t.book = a.book AND t.source = a.id)", book,
			deposit); n != 0 {
			b.find(updates, "%s: %d accounts are not what their transfers make them", book, n)
		}
	}
	rows, err := b.sql.QueryContext(b.Context(), "SELECT id FROM transfers")
	require.NoError(b, err)
	defer rows.Close()
	there := map[string]bool{}
	for rows.Next() {
		var id string
		require.NoError(b, rows.Scan(&id))
		there[id] = true
	}
	require.NoError(b, rows.Err())
	tally, holds := map[string]map[string]int{}, []*hold(nil)
	for _, c := range b.all {
		for _, e := range c.catchUp() {
			switch {
			case e.What == journalDone && !there[e.ID]:
				b.find(acks, "%s was acknowledged under %s at %v, and is not there", e.ID, e.Scheme, e.At)
			case e.What == journalRefused && there[e.ID], e.What == journalFailed && there[e.ID]:
				b.find(comeback, "%s %s under %s at %v, and is there", e.ID, e.What, e.Scheme, e.At)
			case e.What == journalHeld:
				h := newHold(c.label, 0, e.ID, portion{}, 0, e.From, e.From)
				h.end(e.At)
				holds = append(holds, h)
			case e.What == journalWrong:
				b.find(wrongs, "%s: %s at %v: %s", c.label, e.Scheme, e.At, e.ID)
			}
			if tally[e.Scheme] == nil {
				tally[e.Scheme] = map[string]int{}
			}
			tally[e.Scheme][e.What]++
		}
	}
	b.found[twice] = crowded(holds)
	b.reasons()
	b.tried("transfers", len(there))
	b.tried("looks at the total", b.looks)
	for scheme := range b.schemes {
		b.Logf("%s: %v", scheme, tally[scheme])
		b.tried("holds", tally[scheme][journalHeld])
		b.tried("lost", tally[scheme][journalRefused])
	}
	for checker, texts := range b.found {
		b.tell(checker, texts)
	}
}

// varying is what differs in errors of the same cause.
var varying = regexp.MustCompile(`[0-9A-Z]{20,}|"[a-z]+/[0-9]+"|[0-9]+`)

// reasons logs why transfers failed, and how often.
func (b *bank) reasons() {
	b.Helper()
	n := map[string]int{}
	for _, c := range b.all {
		for _, e := range c.entries {
			if e.Err != "" {
				n[e.Scheme+" "+e.What+": "+varying.ReplaceAllString(e.Err, "*")]++
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(n)) {
		b.Logf("%d × %s", n[reason], reason)
	}
}
