//go:build unix

package main

import (
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/dbtest"
	"github.com/dblock-go/dblock/internal/testing/require"
)

// each runs f on every kind of database, as the flags that the program needs for it.
func each(t *testing.T, f func(t *testing.T, flags ...string)) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		if db.Kind == dbtest.KindSQLite {
			f(t)
			return
		}
		f(t, "-dsn="+db.DSN)
		pool := db.SQL(t)
		assert.Error(t, assert.ErrOf(pool.ExecContext(t.Context(), "SELECT balance FROM "+tableName)), tableName,
			"is still there")
		assert.NoError(t, assert.ErrOf(pool.ExecContext(t.Context(), "SELECT name FROM dblock_locks")),
			"dblock's tables are gone")
	})
}

// soak leaves a test to scripts/soak: it takes a TTL in real time.
func soak(t *testing.T) {
	if os.Getenv("DBLOCK_TEST_SOAK") == "" {
		t.Skip("it takes a TTL in real time: scripts/soak runs it")
	}
}

// match finds what the output must contain, and returns its groups as numbers.
func (o outcome) match(t *testing.T, pattern string) []int64 {
	t.Helper()
	groups := regexp.MustCompile(pattern).FindStringSubmatch(o.stdout)
	if groups == nil {
		t.Fatalf("no match for %s in\n%s%s", pattern, o.stdout, o.stderr)
	}
	var numbers []int64
	for _, group := range groups[1:] {
		n, err := strconv.ParseInt(group, 10, 64)
		if err != nil {
			d, durationErr := time.ParseDuration(group)
			require.NoError(t, durationErr, group, "is neither a number nor a duration")
			n = int64(d)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// check checks what every run must print: the losses without the lock, and that there are none with
// it.
func (o outcome) check(t *testing.T, fees int) {
	t.Helper()
	if o.status != 0 {
		t.Fatalf("exit status %d:\n%s%s", o.status, o.stdout, o.stderr)
	}
	all := 2 * testRounds
	lost := o.match(t,
		`(?m)^Without the lock: (\d+) of (\d+) fees were lost in \S+\.\n  The balance is \S+ and should be `+
			regexp.QuoteMeta(money(replay(all).balance))+`\.$`)
	if lost[0] <= 0 || lost[0] >= int64(all) || lost[1] != int64(all) {
		t.Errorf("%d of %d fees were lost without the lock", lost[0], lost[1])
	}
	exact := o.match(t,
		`(?m)^With the lock: exact to the cent, none of (\d+) fees was lost in \S+\.\n  The balance is `+
			regexp.QuoteMeta(money(replay(fees).balance))+`\.$`)
	if exact[0] != int64(fees) {
		t.Errorf("%d fees with the lock, want %d", exact[0], fees)
	}
	for _, escape := range []string{"\x1b", "\r"} {
		if strings.Contains(o.stdout+o.stderr, escape) {
			t.Errorf("an escape sequence, but the output is no terminal: %q", o.stdout)
		}
	}
}

// row is a server's row of the table: fees, grants, wait p50 and p99, last token.
func (o outcome) row(t *testing.T, server string) []int64 {
	t.Helper()
	return o.match(t, `│ `+regexp.QuoteMeta(server)+` +│ +\d+ │ +(\d+) │ +(\d+) │ +(\S+) │ +(\S+) │ +(\d+) │`)
}

func TestFeesAreLostWithoutTheLockAndNoneWithIt(t *testing.T) {
	each(t, func(t *testing.T, flags ...string) {
		o := finish(t, append(flags, fewRounds)...)
		o.check(t, 2*testRounds)
		for _, server := range []string{"1", "2"} {
			if r := o.row(t, server); r[0] != testRounds || r[1] < testRounds || r[2] <= 0 || r[3] < r[2] || r[4] <= 0 {
				t.Errorf("server %s: %v in\n%s", server, r, o.stdout)
			}
		}
	})
}

func TestAKilledServerIsSucceeded(t *testing.T) {
	soak(t)
	each(t, func(t *testing.T, flags ...string) {
		o := finish(t, append(flags, fewRounds, "-crash")...)
		o.check(t, testRounds/2+testRounds)
		const killed = `\n +server 1 is inside, with token (\d+): killed with SIGKILL\n +(\S+) later`
		const succeeded = ` server 2 took over,\n +with the higher token (\d+)\n`
		scene := o.match(t, `With the lock`+killed+succeeded)
		elsewhere := o.match(t, `With the lock, as on another host`+killed+` \(TTL `+testTTL.String()+
			` since its last heartbeat\)`+succeeded)
		for _, s := range [][]int64{scene, elsewhere} {
			if s[2] <= s[0] {
				t.Errorf("token %d after %d", s[2], s[0])
			}
		}
		if scene[1] >= elsewhere[1] {
			t.Errorf("a crash on this host is seen after %v, and one on another after %v", time.Duration(scene[1]),
				time.Duration(elsewhere[1]))
		}
		o.match(t, `(?m)^With the lock, as on another host: exact to the cent, none of (\d+) fees was lost`)
		if r := o.row(t, "1 killed"); r[0] != testRounds/2 || r[1] < testRounds/2+1 || r[4] != scene[0] {
			t.Errorf("server 1: %v in\n%s", r, o.stdout)
		}
		if r := o.row(t, "2"); r[0] != testRounds || r[4] < scene[2] {
			t.Errorf("server 2: %v in\n%s", r, o.stdout)
		}
	})
}

func TestAStoppedServerWakesUpAndItsStaleWriteIsRefused(t *testing.T) {
	soak(t)
	each(t, func(t *testing.T, flags ...string) {
		o := finish(t, append(flags, fewRounds, "-pause")...)
		o.check(t, 2*testRounds)
		scene := o.match(t, `server 1 is inside, with token (\d+): stopped with SIGSTOP\n +(\S+) later \(TTL `+
			testTTL.String()+
			` since its last heartbeat\) server 2 took over,\n +with the higher token (\d+), and wrote\n +server 1 continues, by SIGCONT\n +(\S+) later its context has ended:\n +lost: `)
		if scene[2] <= scene[0] {
			t.Errorf("token %d after %d", scene[2], scene[0])
		}
		o.match(t, `it writes all the same, as a bad program would: refused, 0 rows updated\n`)
	})
}

func TestMySQLCanBeNamedByAURL(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		if db.Kind != dbtest.KindMySQL && db.Kind != dbtest.KindMariaDB {
			return
		}
		c, err := mysql.ParseDSN(db.DSN)
		require.NoError(t, err)
		u := url.URL{Scheme: "mysql", User: url.UserPassword(c.User, c.Passwd), Host: c.Addr, Path: "/" + c.DBName}
		if o := finish(t, "-dsn="+u.String(), fewRounds); o.status != 0 {
			t.Errorf("exit status %d:\n%s%s", o.status, o.stdout, o.stderr)
		}
	})
}

func TestASecondRunStaysOutOfTheDatabase(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db dbtest.Database) {
		if db.Kind == dbtest.KindSQLite {
			return // a file of its own for each run
		}
		first := begin(t, "-dsn="+db.DSN, "-rounds=1000000")
		first.await(t, "Without the lock")
		second := finish(t, "-dsn="+db.DSN)
		if second.status != 1 || !strings.Contains(second.stderr, "another run uses this database") {
			t.Errorf("exit status %d:\n%s%s", second.status, second.stdout, second.stderr)
		}
		interrupt(t, first)
	})
}

func TestCtrlCEndsEverything(t *testing.T) {
	for name, flags := range map[string][]string{
		"without the lock":       {"-rounds=1000000"},
		"with the lock":          {"-rounds=1000"},
		"while one is stopped":   {fewRounds, "-pause"},
		"while one takes over":   {fewRounds, "-crash"},
		"with very many servers": {"-rounds=1000000", "-servers=8"},
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, flags...)
			switch flags[0] {
			case fewRounds:
				r.await(t, "is inside")
			case "-rounds=1000":
				r.await(t, "With the lock")
			default:
				r.await(t, "Without the lock")
			}
			interrupt(t, r)
			if left, err := os.ReadDir(r.folder); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

func TestServersEndWhenTheProgramIsKilled(t *testing.T) {
	for name, flags := range map[string][]string{
		"while they run":       {"-rounds=1000"},
		"while one is stopped": {fewRounds, "-pause"},
	} {
		t.Run(name, func(t *testing.T) {
			if len(flags) == 2 && runtime.GOOS != "linux" {
				return // only the kernel of Linux ends a process that is stopped
			}
			r := begin(t, flags...)
			r.await(t, map[bool]string{true: "is inside", false: "With the lock"}[len(flags) == 2])
			require.NoError(t, r.cmd.Process.Kill())
			r.wait(t, endTimeout+5*time.Second)
			if status := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
				t.Errorf("it ended by itself: %v", status)
			}
		})
	}
}
