package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
	"github.com/dblock-go/dblock/postgres"
)

func TestLsShowsWhoHasWhat(t *testing.T) {
	eachKind(t, func(w *world) {
		contains(w, w.must("ls"), "No lock is held")
		held := w.lock("orders/1", dblock.Owner("there", "worker-7"), dblock.Metadata(map[string]string{"order": "1"}))
		w.waits("orders/1", 1)
		w.lock("orders/2", dblock.Permits(2, 5))
		w.lock("other")
		out := w.must("ls")
		contains(w, out, "orders/1", "orders/2", "other", "NAME", "HOLDER", fmt.Sprintf("there:%d worker-7",
			os.Getpid()), "orders", "2 of 5", "exclusive", fmt.Sprint(held.Token()))
		if out := w.must("ls", "orders/"); strings.Contains(out, "other") || !strings.Contains(out, "orders/2") {
			w.Errorf("ls orders/:\n%s", out)
		}
		if out := w.must("ls", "--contended"); strings.Contains(out, "orders/2") || !strings.Contains(out, "orders/1") {
			w.Errorf("ls --contended:\n%s", out)
		}
		candidate := contract.Set(func(o *contract.Options) { o.Candidate = true })
		w.waits("other", 1, candidate)
		if out := w.must("ls", "--contended"); strings.Contains(out, "other") {
			w.Errorf("ls --contended with a candidate:\n%s", out)
		}
		if out := w.must("show", "other"); !strings.Contains(out, "the lead") {
			w.Errorf("show with a candidate:\n%s", out)
		}
		if out := w.must("ls", "--host", "elsewhere"); !strings.Contains(out, "No lock is held") {
			w.Errorf("ls --host elsewhere:\n%s", out)
		}
		var info inspect.Info
		line, _, _ := strings.Cut(w.must("ls", "--json"), "\n")
		if err := json.Unmarshal([]byte(line), &info); err != nil || info.Name != "orders/1" ||
			info.Holders[0].Token != held.Token() || info.Queued != 1 {
			w.Errorf("ls --json: %+v, %v", info, err)
		}
		contains(w, w.must("show", "orders/1"), "worker-7", "order=1", "Waiters, in this order: 1", "PLACE")
		contains(w, w.must("show", "nobody's"), "It is free.")
		contains(w, w.must("sessions"), "there", "orders", "HOLDS")
	})
}

func TestWhoLooksDoesNotReadTablesOfAnotherVersion(t *testing.T) {
	w := onSQLite(t)
	w.exec("UPDATE dblock_schema SET version = 99, usable_from = 99")
	for _, look := range []string{"ls", "show n", "why n", "sessions", "jobs", "runs n", "events"} {
		s := w.run(strings.Fields(look)...)
		if s.status != exitFailed || !strings.Contains(s.err, "serves builds for version 99") {
			t.Errorf("%v: %+v", look, s)
		}
	}
}

func TestLsShowsFreeNamesOnRequest(t *testing.T) {
	w := onSQLite(t)
	require.NoError(t, w.lock("was held").Unlock(t.Context()))
	contains(t, w.must("ls"), "No lock is held")
	contains(t, w.must("ls", "--all"), "was held", "free")
}

func TestAProgramReadsAllRows(t *testing.T) {
	w := onSQLite(t)
	job := jobs.New(w.client)
	for i := 59; i >= 0; i-- {
		held := w.lock(fmt.Sprintf("n/%02d", i))
		require.NoError(t, held.Record(t.Context(), "checked", ""))
		at := time.Now().Add(-time.Duration(i) * time.Hour)
		require.NoError(t, require.ErrOf(job.OnceAt(t.Context(), "job", at, func(context.Context, *dblock.Lock,
			time.Time) error {
			return nil
		})))
	}
	for command, rows := range map[string]int{"runs job": 20, "events --kind checked": 50} {
		s := w.run(strings.Fields(command)...)
		contains(t, s.err, fmt.Sprintf("The first %d. To go on: --limit 0 for all.", rows))
		assert.Equal(t, strings.Count(w.must(append(strings.Fields(command), "--json")...), "\n"), 60, command)
	}
	assert.Equal(t, strings.Count(w.must("ls", "--json", "--limit", "100"), "\n"), 60, "names")
}

func TestVersionSaysWhichTablesItNeeds(t *testing.T) {
	contains(t, alone(t, "version").out, "dblock ", "go1.", fmt.Sprintf("tables of version %d", driver.SchemaVersion))
	contains(t, alone(t, "version", "--json").out, fmt.Sprintf(`"tables":%d}`, driver.SchemaVersion))
}

func TestANameCannotCommandTheTerminal(t *testing.T) {
	w := onSQLite(t)
	w.lock("clear\x1b[2J", dblock.Owner("there", "first\nsecond"))
	for _, arguments := range [][]string{{"ls"}, {"show", "clear\x1b[2J"}, {"why", "clear\x1b[2J"}} {
		out := w.must(arguments...)
		contains(t, out, `clear\x1b[2J`, `first\nsecond`)
		if strings.ContainsAny(out, "\x1b") {
			t.Errorf("%q says %q", arguments, out)
		}
	}
}

func TestLsShowsAPageAndSaysHowToGoOn(t *testing.T) {
	w := onSQLite(t)
	for i := range 25 {
		w.lock(fmt.Sprintf("n/%02d", i))
	}
	s := w.run("ls", "--limit", "10")
	if s.status != 0 || strings.Count(s.out, "n/") != 10 || !strings.Contains(s.err, `--after "n/09"`) {
		t.Fatalf("%+v", s)
	}
	s = w.run("ls", "--limit", "10", "--after", "n/19")
	if strings.Count(s.out, "n/") != 5 || s.err != "" {
		t.Fatalf("%+v", s)
	}
	require.Equal(t, strings.Count(w.must("ls", "--limit", "0"), "n/"), 25, "of 25")
}

// watch is a command that watches, as a process. All that it says goes to one file.
type watch struct {
	*world
	process *exec.Cmd
	file    string
	read    int // of the file
}

func (w *world) watch(arguments ...string) *watch {
	w.Helper()
	out, err := os.Create(w.TempDir() + "/out")
	require.NoError(w, err)
	defer out.Close()
	c := w.command(arguments...)
	c.Stdout, c.Stderr = out, out
	require.NoError(w, c.Start())
	return &watch{world: w, process: c, file: out.Name()}
}

// shows waits until it says something that it has not said before.
func (w *watch) shows(what string) {
	w.Helper()
	w.until(func() bool {
		text, err := os.ReadFile(w.file)
		require.NoError(w, err)
		at := strings.Index(string(text[w.read:]), what)
		if at >= 0 {
			w.read += at + len(what)
		}
		return at >= 0
	})
}

// interrupt ends it as ^C does.
func (w *watch) interrupt() {
	w.Helper()
	require.NoError(w, w.process.Process.Signal(syscall.SIGINT))
	assert.NoError(w, w.process.Wait(), "after an interrupt")
}

func TestWatchShowsWhatChangesUntilItIsInterrupted(t *testing.T) {
	w := onSQLite(t)
	is := w.watch("ls", "--watch=20ms")
	is.shows("No lock is held")
	w.lock("came later")
	is.shows("came later")
	is.interrupt()
}

func TestAWatchSurvivesAFailover(t *testing.T) {
	eachServer(t, func(w *world) {
		far, proxy := w.through()
		is := far.watch("ls", "--watch=20ms", "--timeout", "2s")
		is.shows("No lock is held")
		proxy.Freeze()
		is.shows("dblock: no answer within 2s; a failover may be in progress: the watch continues")
		proxy.Heal()
		w.lock("after the silence")
		is.shows("after the silence")
		proxy.Cut()
		is.shows("a failover may be in progress: the watch continues")
		proxy.Heal()
		w.lock("after the end of all connections")
		is.shows("after the end of all connections")
		is.interrupt()
	})
}

func TestEachLookOfAWatchHasThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, complaints bytes.Buffer
		o := &options{given: func(string) bool { return false }, timeout: defaultTimeout, stderr: &complaints}
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		err := o.repeat(ctx, &out, time.Second, func(ctx context.Context, w io.Writer) error {
			looks++
			fmt.Fprintln(w, "look", looks)
			switch looks {
			case 2:
				began := time.Now()
				<-ctx.Done()
				assert.Equal(t, time.Since(began), firstSign, "a look that is not answered takes")
				return ctx.Err()
			case 3:
				return errors.New("refused\nby it")
			case 5:
				cancel()
			}
			return nil
		})
		if err != nil || out.String() != "look 1\nlook 4\n" {
			t.Errorf("%v, %q", err, out.String())
		}
		if want := "dblock: no answer within 3s; a failover may be in progress: the watch continues\ndblock: " +
			"refused; by it; a failover may be in progress: the watch continues\n"; complaints.String() != want {
			t.Errorf("%q, want %q", complaints.String(), want)
		}
	})
}

func TestAWatchEndsWhereItsFirstLookFails(t *testing.T) {
	w := onSQLite(t)
	if s := w.run("ls", "--native", "--watch"); s.status != exitUsage ||
		!strings.Contains(s.err, "SQLite has no locks of its own") {
		t.Errorf("%+v", s)
	}
	w.must("migrate", "down", "--yes")
	if s := w.run("ls", "--watch"); s.status != exitFailed || !strings.Contains(s.err, "tables are missing") {
		t.Errorf("%+v", s)
	}
}

func TestJobsAndTheirRuns(t *testing.T) {
	eachKind(t, func(w *world) {
		contains(w, w.must("jobs"), "No job has run")
		var given time.Time
		run := func(name string, result error) {
			_, _ = jobs.New(w.client).OncePer(w.Context(), name, time.Hour, func(_ context.Context, _ *dblock.Lock,
				slot time.Time) error {
				given = slot
				return result
			})
		}
		run("report", nil)
		run("backup", fmt.Errorf("the disk is full"))
		contains(w, w.must("jobs"), "report", "ok", "backup", "failed: the disk is full", "there")
		runs := w.must("runs", "backup")
		contains(w, runs, "failed: the disk is full", "TRIES")
		if line := strings.TrimSpace(runs); !strings.HasPrefix(line, "SLOT ") {
			w.Errorf("the slot is not the first column of %q", line)
		}
		contains(w, runs, given.Local().Format("2006-01-02 15:04:05"))
		contains(w, w.must("runs", "nothing"), "has not run")
	})
}

func TestEventsComeLatestFirst(t *testing.T) {
	eachKind(t, func(w *world) {
		contains(w, w.must("events"), "Nothing is recorded")
		held := w.lock("n")
		require.NoError(w, held.Record(w.Context(), "checked", "half of it"))
		assert.Equal(w, w.must("ask", "n", "--reason", "a deployment"), "")
		out := w.must("events", "n", "--kind", "checked,asked")
		contains(w, out, "half of it", "a deployment")
		if strings.Index(out, "asked") > strings.Index(out, "checked") {
			w.Errorf("the latest is not the first:\n%s", out)
		}
		contains(w, w.must("show", "n"), "was asked to release it: a deployment")
		contains(w, w.must("events", "--since", "1h", "--kind", "asked", "--limit", "1"), "asked")
	})
}

func TestAKeyIsThatOfTheLibrary(t *testing.T) {
	s := alone(t, "key", "orders/42", "--json")
	var k struct {
		Name, Named string
		Advisory    int64
		ClassID     uint32 `json:"class_id"`
		ObjID       uint32 `json:"obj_id"`
	}
	if err := json.Unmarshal([]byte(s.out), &k); err != nil || k.Advisory != postgres.AdvisoryKey("orders/42") ||
		k.Named != "dblock/orders/42" {
		t.Fatalf("%+v, %v, %+v", k, err, s)
	}
	if k.Advisory != int64(uint64(k.ClassID)<<32|uint64(k.ObjID)) {
		t.Errorf("classid %d and objid %d are not %d", k.ClassID, k.ObjID, k.Advisory)
	}
}

// A server that accepts and says nothing is what a failover, a partition or a full pooler looks
// like.
func TestWhoLooksHearsSoonThatTheServerIsSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts for it
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for _, scheme := range []string{"postgres", "mysql"} {
		in := shell{environment: []string{"DBLOCK_DSN=" + scheme + "://a@" + silent.Addr().String() + "/x"}}
		for _, arguments := range [][]string{{"ls"}, {"ls", "--native"}, {"why", "n"}, {"show", "n"}, {"sessions"},
			{"jobs"}, {"events"}} {
			s := in.run(t, append(arguments, "--timeout", "100ms")...)
			if s.status != exitFailed || strings.Count(s.err, "\n") != 1 {
				t.Errorf("%v: status %d, %q: want one line", arguments, s.status, s.err)
			}
			contains(t, s.err, "cannot be reached: no answer within 100ms", "a failover may be in progress")
		}
		t.Run(scheme+" without --timeout", func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			s := in.run(t, "why", "n")
			if took := time.Since(began); took > 2*firstSign {
				t.Errorf("it took %v", took)
			}
			contains(t, s.err, "cannot be reached: no answer within 3s", "try again", "--timeout")
		})
	}
}

func TestWhoLooksFindsTheServerBehindASilentOne(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() }) // after the parallel subtests
	onPostgres(t, func(w *world) {
		u, err := url.Parse(w.dsn)
		if err != nil || u.Host == "" {
			w.Skipf("the data source %q has no host in it: %v", w.dsn, err)
		}
		w.lock("held")
		u.Host = silent.Addr().String() + "," + u.Host
		w = w.at(u.String())
		contains(w, w.must("ls"), "held")
		w.doctor().hasOnly(isOK, "connection")
	})
}

// A standby, and a server that a failover has left read-only, tell what they know.
func TestWhoLooksAtAServerThatIsReadOnlyIsAnswered(t *testing.T) {
	onPostgres(t, func(w *world) {
		w.lock("held")
		w = w.at(w.parameter("default_transaction_read_only=on"))
		contains(w, w.must("ls"), "held")
		contains(w, w.must("why", "held"), "held", "is not known", "read-only transaction")
		contains(w, w.must("sessions"), "there")
	})
}

// through is the world as a host sees it that reaches its server through a proxy.
func (w *world) through() (*world, *dbtest.Proxy) {
	w.Helper()
	u, err := url.Parse(w.dsn)
	if err != nil || u.Host == "" {
		w.Skipf("the data source %q has no host in it: %v", w.dsn, err)
	}
	proxy := dbtest.NewProxy(w, u.Host)
	u.Host = proxy.Addr()
	return w.at(u.String()), proxy
}

// parameter is the data source, a URL, with another parameter.
func (w *world) parameter(text string) string {
	if strings.Contains(w.dsn, "?") {
		return w.dsn + "&" + text
	}
	return w.dsn + "?" + text
}
