package main

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock/migrate"
)

// nowOf returns the statement that reads an engine's clock, in microseconds since 1970, as the
// tables have it.
func nowOf(engine migrate.Engine) string {
	if engine == migrate.Postgres {
		return "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	}
	return "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS SIGNED)"
}

// clocks compares the server's clock to this host's. The shortest of some round trips is the most
// exact.
func clocks(ctx context.Context, e *examination) ([]finding, error) {
	trip, ahead := time.Duration(math.MaxInt64), time.Duration(0)
	for range 5 {
		var micros int64
		before := time.Now()
		if err := e.QueryRowContext(ctx, nowOf(e.engine)).Scan(&micros); err != nil {
			return nil, err
		}
		if took := time.Since(before); took < trip {
			trip, ahead = took, before.Add(took/2).Sub(time.UnixMicro(micros))
		}
	}
	return found(apart(ahead, trip/2))
}

const (
	slotTolerance = time.Minute // OnceAt refuses a slot that is further ahead
	noticeable    = time.Second // an error from which on ages shown by the commands are wrong
)

// apart judges the time by which this host's clock is ahead of the server's, give or take an error.
// Locks compare no clocks: only commands and options that name a time are affected.
func apart(ahead, give time.Duration) finding {
	how := fmt.Sprintf("this host's clock is %v ahead of the server's (±%v)", ahead.Round(time.Millisecond),
		give.Round(time.Microsecond))
	if ahead < 0 {
		how = fmt.Sprintf("this host's clock is %v behind the server's (±%v)", -ahead.Round(time.Millisecond),
			give.Round(time.Microsecond))
	}
	switch least := ahead.Abs() - give; {
	case least > slotTolerance && ahead > 0:
		return problem(how+"; OnceAt and run --slot-of refuse its slots, and ages are wrong. Locks do not suffer",
			"synchronise both clocks (NTP)")
	case least > slotTolerance:
		return problem(how+"; its jobs of OnceAt and run --slot-of come late, and ages are wrong. Locks do not suffer",
			"synchronise both clocks (NTP)")
	case least > noticeable:
		return note(how+"; ages that are shown are wrong by this. Locks do not suffer", "synchronise both clocks (NTP)")
	}
	return fine(how)
}

// server is a kind of server with the versions on which dblock's own tests run.
type server struct {
	name   string
	tested []string
	oldest string // the oldest version that is expected to work
}

// servers is README's table; a test compares them.
var servers = []server{
	{"PostgreSQL", []string{"15", "18"}, "14"},
	{"MySQL", []string{"9.7"}, "8.0"},
	{"MariaDB", []string{"10.11", "11.8"}, "10.6"},
}

// strangers are servers of another kind that speak a protocol of the servers. mark is a part of
// their version.
var strangers = []struct{ mark, name string }{
	{"CockroachDB", "CockroachDB"},
	{"-YB-", "YugabyteDB"},
	{"OceanBase", "OceanBase"},
}

// aurora returns the finding for Amazon Aurora. Its version is that of the server that it derives
// from.
func aurora(version string) finding {
	return note("the server is Amazon Aurora ("+version+"), which dblock was not tried on",
		"try it, and its failover, before you rely on it: docs/operating.md")
}

// versionOf judges a server's name and version, as the server tells them.
func versionOf(name, version string) finding {
	if isTiDB(version) {
		return note("the server is TiDB ("+version+"), on which waiters poll",
			"see what else is different: docs/tidb.md")
	}
	if isVitess(version) {
		return note("the server is Vitess ("+version+"), on which waiters poll",
			"see what else is different: docs/vitess.md")
	}
	for _, stranger := range strangers {
		if strings.Contains(version, stranger.mark) {
			return problem(fmt.Sprintf("the server is %s (%s), which dblock was not tried on", stranger.name, version),
				"expect that it does not work: docs/operating.md")
		}
	}
	is := servers[slices.IndexFunc(servers, func(s server) bool { return s.name == name })]
	what := name + " " + version
	switch {
	case slices.ContainsFunc(is.tested, func(v string) bool { return compareVersions(version, v) == 0 }):
		return fine(what + ", a version that dblock's tests run on")
	case compareVersions(version, is.oldest) < 0:
		return problem(fmt.Sprintf("%s is older than %s", what, is.oldest), "update the server")
	}
	return note(fmt.Sprintf("%s is expected to work, and dblock's tests do not run on it (but on %s)", what,
		strings.Join(is.tested, ", ")), "try it before you rely on it")
}

// compareVersions compares as many numbers as b has.
func compareVersions(a, b string) int {
	for part := range strings.SplitSeq(b, ".") {
		var first string
		first, a, _ = strings.Cut(a, ".")
		if c := leading(first) - leading(part); c != 0 {
			return c
		}
	}
	return 0
}

// leading returns the number at the beginning of a text.
func leading(text string) int {
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		text = text[:end]
	}
	n, _ := strconv.Atoi(text)
	return n
}

// limit is a limit of connections, and their use.
type limit struct {
	of        string
	most, use int // most <= 0: no limit
}

// judge tells whether another client finds the connections that it needs.
func (l limit) judge(needs int) finding {
	what := fmt.Sprintf("%d of the %d connections of %s are in use", l.use, l.most, l.of)
	switch {
	case l.most <= 0:
		return fine(fmt.Sprintf("%d connections of %s are in use, and there is no limit", l.use, l.of))
	case l.most-l.use < needs:
		return problem(fmt.Sprintf("%s: a client needs up to %d beside the application's work, and heartbeats fail "+
			"without", what, needs), "raise the limit, or make the pools smaller")
	case l.use*5 >= l.most*4:
		return note(fmt.Sprintf("%s; each client needs up to %d beside the application's work", what, needs),
			"raise the limit, or make the pools smaller")
	}
	return fine(fmt.Sprintf("%s; each client needs up to %d beside the application's work", what, needs))
}

// takeover is the longest time until the lock of a crashed client is free, with the default TTL.
const takeover = 15*time.Second + time.Second

// timeout is a setting that ends statements or sessions. Below least nothing works reliably. Below
// enough it has the effect described by cuts.
type timeout struct {
	name          string
	least, enough time.Duration
	cuts          string
}

// judge judges a value; 0: the setting is off.
func (t timeout) judge(value time.Duration, from string) (f finding, is bool) {
	what := fmt.Sprintf("%s is %v (%s)", t.name, value, from)
	switch {
	case value <= 0 || value >= t.least && value >= t.enough:
		return finding{}, false
	case value < t.least:
		return problem(fmt.Sprintf("%s, and dblock's own statements and connections may be cut off", what),
			fmt.Sprintf("set it to %v or more for this user", max(t.least, t.enough))), true
	}
	return note(what+", and "+t.cuts, fmt.Sprintf("set it to %v or more for this user, or live with that", t.enough)),
		true
}

// transactions are those that have been open for too long.
type transactions struct {
	n     int
	worst string
	age   time.Duration
}

func (t transactions) judge(e *examination, harm, do string) finding {
	if t.n == 0 {
		return fine(fmt.Sprintf("no transaction has been open for longer than %v", e.older))
	}
	return note(fmt.Sprintf("transactions that have been open for longer than %v: %d; the oldest for %v, %s. %s",
		e.older, t.n, t.age.Round(time.Second), t.worst, harm), do)
}

// column returns the rows of a query with one column.
func column(rows *sql.Rows, err error) (all []string, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
