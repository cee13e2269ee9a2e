//go:build linux

package clusters

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/leak"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/migrate"
)

// The flags of scripts/soak clusters.
var (
	kind   = flag.String("cluster", "", "what to soak: "+strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	folder = flag.String("folder", "", "of the cluster, which is not there yet")
	into   = flag.String("log", "", "the file of what the clients say")
	seed   = flag.Uint64("seed", rand.Uint64N(1e6), "of the plan of faults")
	grants = flag.Int("grants", 10_000, "how many locks are to be granted")
	rounds = flag.Int("rounds", 1, "how often each fault comes")
	only   = flag.String("fault", "", "only this one")
	doctor = flag.String("doctor", "", "the test binary of cmd/dblock, for TestDoctor")
	bug    = flag.Bool("bug", false,
		"seed one: some increments are made after Unlock, and none has a Guard. The run must fail")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *kind == "" {
		os.Exit(leak.Main(m))
	}
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // it tells of each connection that ends
	os.Exit(m.Run())
}

// kinds are the clusters, by name.
var kinds = map[string]func(folder string) (*cluster, error){
	"patroni":        func(folder string) (*cluster, error) { return patroni(folder, asynchronous) },
	"patroni-sync":   func(folder string) (*cluster, error) { return patroni(folder, synchronous) },
	"patroni-strict": func(folder string) (*cluster, error) { return patroni(folder, strict) },
	"group-single":   func(folder string) (*cluster, error) { return group(folder, true) },
	"group-multi":    func(folder string) (*cluster, error) { return group(folder, false) },
	"galera":         func(folder string) (*cluster, error) { return galera(folder, false) },
	"galera-one":     func(folder string) (*cluster, error) { return galera(folder, true) },
}

// cluster is what is tormented.
type cluster struct {
	engine  migrate.Engine
	driver  string // of database/sql, for the probe
	door    string // a data source that leads to a node that accepts writes
	node    string // a data source of the first node
	ttl     time.Duration
	durable bool // a failover loses no commit: a second holder is a violation
	lagging bool // a client that is moved to another node may not see there what it has just written
	apps    []func(options ...dblock.Option) (*app, error)
	faults  []fault
	healthy func(ctx context.Context) error // nil: all nodes serve
	close   func()
}

// fault is a thing that happens to clusters.
type fault struct {
	name string
	run  func(ctx context.Context) error
}

// workers is how many goroutines of each app take locks, and names how many there are.
const (
	workers = 3
	names   = 6
)

// run is a soak under way.
type run struct {
	*cluster
	history
	began time.Time
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// electionName is the name of the election in which each app has a candidate.
const electionName = "election"

func nameOf(i int) string { return fmt.Sprintf("name %d", i) }

// TestSoak torments a cluster until there are enough grants and each fault has come.
func TestSoak(t *testing.T) {
	if *kind == "" {
		t.Skip("this is scripts/soak clusters")
	}
	find, is := kinds[*kind]
	if !is {
		t.Fatalf("no cluster %q", *kind)
	}
	c, err := find(*folder)
	require.NoError(t, err)
	defer c.close()
	out, err := os.Create(*into)
	require.NoError(t, err)
	defer out.Close()
	logger := slog.New(slog.NewTextHandler(out, nil))
	r := &run{cluster: c, began: time.Now(), history: history{written: map[write]answer{}}}
	r.until(t, "the cluster is healthy", 2*time.Minute, c.healthy)
	probe, err := sql.Open(c.driver, c.door)
	require.NoError(t, err)
	defer probe.Close()
	r.until(t, "the door is open", time.Minute, probe.PingContext)
	r.tables(t, probe)

	working, stop := context.WithCancel(context.Background())
	defer stop()
	var work, apps sync.WaitGroup
	work.Go(func() { r.probe(working, probe) })
	for i, start := range c.apps {
		a, err := start(dblock.WithTTL(c.ttl), dblock.WithLogger(logger))
		require.NoError(t, err)
		var mine sync.WaitGroup
		for range workers {
			mine.Go(func() { r.work(working, i, a) })
		}
		mine.Go(func() { r.stand(working, i, a) })
		apps.Go(func() {
			mine.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = a.close(ctx) // what came of its locks is judged
		})
	}
	counts := r.torment(t)
	stop()
	work.Wait()
	apps.Wait()
	r.judge(t, probe, counts)
}

// until waits for something that may take its time.
func (r *run) until(t *testing.T, what string, most time.Duration, is func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	require.NoError(t, eventually(ctx, is), "not within", most, what)
}

// tables makes those of dblock, and those of the workers.
func (r *run) tables(t *testing.T, pool *sql.DB) {
	t.Helper()
	require.NoError(t, migrate.Up(t.Context(), pool, r.engine))
	statements := []string{ // of a run before, too
		"DROP TABLE IF EXISTS counters", "DROP TABLE IF EXISTS increments", "DROP TABLE IF EXISTS probe",
		"CREATE TABLE counters (name varchar(20) PRIMARY KEY, n bigint NOT NULL)",
		"CREATE TABLE increments (name varchar(20), token bigint, n bigint, PRIMARY KEY (name, n, token))",
		"CREATE TABLE probe (id integer PRIMARY KEY, n bigint NOT NULL)",
		"INSERT INTO probe VALUES (1, 0)",
	}
	for i := range names {
		statements = append(statements, fmt.Sprintf("INSERT INTO counters VALUES ('%s', 0)", nameOf(i)))
	}
	for _, statement := range statements {
		require.NoError(t, require.ErrOf(pool.ExecContext(t.Context(), statement)), statement)
	}
	time.Sleep(time.Second) // on every node
}

// probe writes a row as an application does that knows nothing of dblock.
func (r *run) probe(ctx context.Context, pool *sql.DB) {
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, time.Second)
		_, err := pool.ExecContext(within, "UPDATE probe SET n = n + 1 WHERE id = 1")
		cancel()
		if at := r.now(); err == nil {
			r.note(func() { r.answers = append(r.answers, at) })
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// work takes one lock after the other.
func (r *run) work(ctx context.Context, client int, a *app) {
	for ctx.Err() == nil {
		g := grant{name: nameOf(rand.IntN(names)), client: client, asked: r.now()}
		within, cancel := context.WithTimeout(ctx, 2*time.Minute)
		l, err := a.lock(within, g.name)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				r.refused(a, "Lock", g.asked, err)
				time.Sleep(100 * time.Millisecond)
			}
			continue
		}
		g.from, g.token = r.now(), l.token
		seen := r.watch(l.ctx)
		writing := l.ctx
		if *bug && rand.N(20) == 0 {
			writing = context.WithoutCancel(writing)
			_ = l.unlock(writing)
		}
		before, begun, err := l.add(writing, g.name)
		if begun {
			r.note(func() { r.written[write{g.name, g.token, before}] = answer{err == nil, r.now(), a.way} })
		}
		time.Sleep(rand.N(5 * time.Millisecond))
		g.live = max(g.from, seen())
		r.note(func() { r.grants = append(r.grants, g) })
		asked := r.now()
		within, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
		if err := l.unlock(within); err != nil && ctx.Err() == nil {
			r.refused(a, "Unlock", asked, err)
		}
		cancel()
		time.Sleep(rand.N(5 * time.Millisecond))
	}
}

// stand has a client campaign for terms of a moment each.
func (r *run) stand(ctx context.Context, client int, a *app) {
	for ctx.Err() == nil {
		asked := r.now()
		err := a.campaign(ctx, electionName, func(term context.Context, token int64) {
			g := grant{name: electionName, client: client, token: token, from: r.now()}
			seen := r.watch(term)
			select {
			case <-term.Done():
			case <-time.After(rand.N(200 * time.Millisecond)):
			}
			g.live = max(g.from, seen())
			r.note(func() { r.grants = append(r.grants, g) })
		})
		if err != nil && ctx.Err() == nil {
			r.refused(a, "Campaign", asked, err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// watch looks at a context until it is called, while a statement may hang, and says when that was
// last seen alive.
func (r *run) watch(ctx context.Context) (seen func() time.Duration) {
	live, done, watched := r.now(), make(chan struct{}), make(chan struct{})
	look := func() {
		if now := r.now(); ctx.Err() == nil {
			live = now
		}
	}
	go func() {
		defer close(watched)
		for {
			look()
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() time.Duration {
		close(done)
		<-watched
		look()
		return live
	}
}

// serves is why the cluster is not healthy, or nil: what watches the nodes may not have noticed
// yet.
func (r *run) serves(ctx context.Context) error {
	silent := time.Duration(0)
	r.note(func() {
		if n := len(r.answers); n > 0 {
			silent = r.now() - r.answers[n-1]
		}
	})
	if silent > time.Second {
		return fmt.Errorf("no write for %v", silent)
	}
	return r.healthy(ctx)
}

func (r *run) refused(by *app, call string, from time.Duration, err error) {
	r.note(func() { r.refusals = append(r.refusals, refusal{by.way + ": " + call, by.direct, from, r.now(), err}) })
}

// torment runs faults, each in a healthy cluster, and counts them.
func (r *run) torment(t *testing.T) map[string]int {
	t.Helper()
	random, counts := rand.New(rand.NewPCG(*seed, 0)), map[string]int{}
	var plan []fault
	for range *rounds {
		for _, f := range r.cluster.faults {
			if *only == "" || *only == f.name {
				plan = append(plan, f)
			}
		}
	}
	random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	calm := func() {
		r.until(t, "the cluster is healthy again", 8*time.Minute, r.serves)
		time.Sleep(3*time.Second + time.Duration(random.Int64N(int64(2*time.Second))))
	}
	for _, f := range plan {
		calm()
		began := r.now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		err := f.run(ctx)
		cancel()
		require.NoError(t, err, f.name)
		time.Sleep(2 * time.Second) // until what watches the nodes has noticed
		counts[f.name]++
		calm()
		r.note(func() { r.history.faults = append(r.history.faults, span{began, r.now()}) })
		r.note(func() {
			longest := time.Duration(0)
			for _, s := range outages(r.answers, 0) {
				if s.to > began {
					longest = max(longest, s.length())
				}
			}
			fmt.Printf("%-14s %-22s at %5.1f s: no write for %4.1f s, %d grants so far\n", *kind, f.name,
				began.Seconds(), longest.Seconds(), len(r.grants))
		})
	}
	for enough, waited := false, 0; !enough; waited++ {
		if r.note(func() { enough = len(r.grants) >= *grants }); waited > 600 {
			t.Fatalf("not %d grants ten minutes after the last fault", *grants)
		}
		time.Sleep(time.Second)
	}
	calm()
	return counts
}

// addedMost is how much later than the cluster dblock may be back.
const addedMost = 2 * time.Second

// judge says what was seen, in one line, and fails for what must not be.
func (r *run) judge(t *testing.T, pool *sql.DB, counts map[string]int) {
	t.Helper()
	var there []write
	r.until(t, "the increments are read", time.Minute, func(ctx context.Context) error {
		there = nil
		rows, err := pool.QueryContext(ctx, "SELECT name, token, n FROM increments")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var w write
			if err := rows.Scan(&w.name, &w.token, &w.n); err != nil {
				return err
			}
			there = append(there, w)
		}
		return rows.Err()
	})
	both, fell := overlaps(r.history.grants), fallen(r.history.grants)
	out := outages(r.answers, time.Second)
	bad := early(r.refusals, out, r.history.faults, r.ttl*7/10)
	twice, stale, lost := books(there, r.written)
	var longest, second, late time.Duration
	for _, s := range out {
		longest, late = max(longest, s.length()), max(late, added(s, r.history.grants))
	}
	for _, s := range both {
		second = max(second, s.length())
	}
	kindsOf := map[string]int{}
	if !r.durable || r.lagging { // what it held is gone with the commits that the failover has lost, or not there yet
		bad = slices.DeleteFunc(bad, func(f refusal) bool {
			return errors.Is(f.err, dblock.ErrLost) || errors.Is(f.err, dblock.ErrNotHeld)
		})
	}
	for _, f := range r.refusals {
		kindsOf[f.call+": "+kindOf(f.err)]++
	}
	terms := 0
	for _, g := range r.history.grants {
		if g.name == electionName {
			terms++
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	fmt.Printf("%-14s %4.0f s: %d grants, %d of them terms, %s; %d outages, the longest %.1f s, and dblock at most "+
		"%.1f s later; second holders: %d, each for %.3f s at most; tokens that fell: %d; increments: %d, twice: "+
		"%d, by a stale token: %d, confirmed and gone: %d %s; calls that failed: %d %v, within a TTL: %d; seed %d\n",
		*kind, r.now().Seconds(), len(r.history.grants), terms, strings.Join(parts, ", "), len(out), longest.Seconds(),
		late.Seconds(), len(both), second.Seconds(), len(fell),
		len(there), twice, stale, len(lost), told(lost), len(r.refusals), kindsOf, len(bad), *seed)
	if r.durable && (len(both) > 0 || len(lost) > 0) {
		t.Errorf("%d second holders, %d increments lost", len(both), len(lost))
	}
	if r.durable && len(fell) > 0 || twice > 0 || stale > 0 { // two histories, of which one is lost, have a token each
		t.Errorf("%d tokens fell; %d increments of an old number, %d of a stale token", len(fell), twice, stale)
	}
	for i, f := range bad {
		if i < 10 {
			t.Errorf("%s failed at %.1f s after %v: %v", f.call, f.to.Seconds(), f.to-f.from, f.err)
		}
	}
	most := addedMost
	if !r.durable { // a session that lives in the other history keeps its names in this one for a TTL
		most += r.ttl
	}
	for _, s := range out {
		if by := added(s, r.history.grants); by > most && s.length() < r.ttl*7/10 {
			t.Errorf("the first lock after an outage from %.1f to %.1f s came %v later", s.from.Seconds(),
				s.to.Seconds(), by)
		}
	}
}

func kindOf(err error) string {
	for name, kind := range map[string]error{
		"ErrUnavailable": dblock.ErrUnavailable, "ErrReadOnly": dblock.ErrReadOnly, "ErrLost": dblock.ErrLost,
		"ErrNotHeld": dblock.ErrNotHeld,
		"ErrSchema":  dblock.ErrSchema, "ErrConfig": dblock.ErrConfig,
	} {
		if errors.Is(err, kind) {
			return name
		}
	}
	return err.Error()
}
