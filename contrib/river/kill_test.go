package riverlock_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/dblock-go/dblock"
	riverlock "github.com/dblock-go/dblock/contrib/river"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// The environment of a process of its own that works jobs.
const (
	childKind = "DBLOCK_RIVER_KIND"
	childDSN  = "DBLOCK_RIVER_DSN"
)

const (
	jobs    = 30
	workers = 4 // of each of the two processes
	permits = 2
)

// charge is a job of a customer, and the worker of it.
type charge struct {
	Customer string `json:"customer"`
}

func (charge) Kind() string { return "charge" }

// recorder works a charge: it writes into the table when it began and ended.
type recorder struct {
	river.WorkerDefaults[charge]
	db  *sql.DB
	now string
}

func (r recorder) Work(ctx context.Context, job *river.Job[charge]) error {
	pid := os.Getpid()
	if _, err := r.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO worked (job, pid, began) VALUES (%d, %d, %s)", job.ID,
		pid, r.now)); err != nil {
		return err
	}
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
	_, err := r.db.ExecContext(context.WithoutCancel(ctx),
		fmt.Sprintf("UPDATE worked SET ended = %s WHERE job = %d AND pid = %d", r.now, job.ID, pid))
	return err
}

// config is that of a River client of a test.
func config(w *river.Workers, limit *riverlock.Middleware) *river.Config {
	return &river.Config{
		Workers: w, Middleware: []rivertype.Middleware{limit},
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		FetchCooldown: 10 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond, Logger: silent,
	}
}

func perCustomer(job *rivertype.JobRow) riverlock.Limit {
	return riverlock.Limit{Key: string(job.EncodedArgs), Permits: permits}
}

// work works jobs until its standard input ends.
func work() {
	err := func() error {
		k, ctx := kinds[os.Getenv(childKind)], context.Background()
		db, err := sql.Open(k.driver, os.Getenv(childDSN))
		if err != nil {
			return err
		}
		client, err := dblock.New(k.new(db), dblock.WithTTL(10*time.Second))
		if err != nil {
			return err
		}
		limit, err := riverlock.New(client.Locker(), prefix, perCustomer, riverlock.Snooze(100*time.Millisecond))
		if err != nil {
			return err
		}
		w := river.NewWorkers()
		river.AddWorker(w, recorder{db: db, now: k.now})
		r, err := k.queue(ctx, os.Getenv(childDSN), config(w, limit))
		if err != nil {
			return err
		}
		if err := r.Start(ctx); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// start runs workers in a process of its own, which ends with the test at the latest.
func (d database) start(t *testing.T) *exec.Cmd {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childKind+"="+d.name, childDSN+"="+d.dsn)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	return child
}

func TestJobsOfACustomerShareTheirPermitsWhenAProcessIsKilled(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		db := d.open(t)
		r := d.river(t, &river.Config{Logger: silent})
		insert(t, r)
		processes := []*exec.Cmd{d.start(t), d.start(t)}
		d.wait(t, db, "SELECT count(*) >= 8 FROM worked WHERE ended IS NOT NULL")
		victim := processes[0]
		d.wait(t, db, fmt.Sprintf("SELECT count(*) > 0 FROM worked WHERE ended IS NULL AND pid = %d",
			victim.Process.Pid))
		require.NoError(t, victim.Process.Kill())
		_ = victim.Wait()
		var killed int64
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT "+d.now).Scan(&killed))
		// What the victim had fetched, which may be all that there was, stays with it until River
		// rescues it. The other process goes on.
		insert(t, r)
		d.wait(t, db, fmt.Sprintf("SELECT count(*) >= 8 FROM worked WHERE ended IS NOT NULL AND began > %d", killed))
		assert.Equal(t, d.most(t, db, victim.Process.Pid, killed), permits, "jobs of the customer at once")
	})
}

// insert makes jobs of one customer.
func insert(t *testing.T, r queue) {
	t.Helper()
	for range jobs {
		require.NoError(t, require.ErrOf(r.Insert(t.Context(), charge{"42"}, nil)))
	}
}

// wait waits until a query says yes.
func (d database) wait(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		var yes bool
		require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&yes))
		if yes {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it did not become true: %s\n%s", query, d.states(t, db))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// states tells what became of the jobs.
func (d database) states(t *testing.T, db *sql.DB) (text string) {
	rows, err := db.QueryContext(t.Context(), "SELECT state, count(*), max(errors) FROM river_job GROUP BY state")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var state, n, failures any
		require.NoError(t, rows.Scan(&state, &n, &failures))
		text += fmt.Sprintf("%s: %v %s\n", state, n, failures)
	}
	return text
}

// most is the greatest number of jobs that were worked at once, if those of a process that have not
// ended were killed at the given time.
func (d database) most(t *testing.T, db *sql.DB, victim int, killed int64) (most int) {
	type change struct {
		at int64
		by int
	}
	var changes []change
	rows, err := db.QueryContext(t.Context(), fmt.Sprintf(
		"SELECT began, coalesce(ended, CASE pid WHEN %d THEN %d ELSE %d END) FROM worked", victim, killed,
		int64(math.MaxInt64)))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var began, ended int64
		require.NoError(t, rows.Scan(&began, &ended))
		changes = append(changes, change{began, 1}, change{ended, -1})
	}
	require.NoError(t, rows.Err())
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now := 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}
