// Command table turns the output of the benchmarks into Markdown. README.md has its main rows.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dblock-go/dblock/bench/figures"
)

// line is a row of the table: its benchmark, and the metrics joined by " / ".
type line struct {
	title, benchmark string
	metrics          []string
	format           string  // of one metric
	times            float64 // the factor of the metrics, if not 0
}

var table = []line{
	{title: "`Lock` + `Unlock`, one free name: time ÷ two bare commits, of the medians / of the sums (aim ≤ 0.6 " +
		"/ 1.0 / 1.3 / 1.3)", benchmark: "Pair/names=1", metrics: []string{"p50-ratio", "ratio"}, format: "%.2f"},
	{title: "the same over 1,000 names", benchmark: "Pair/names=1000", metrics: []string{"p50-ratio", "ratio"},
		format: "%.2f"},
	{title: "256 goroutines, 768 names: pairs per second ÷ pairs of bare commits (aim ≥ 5 / 6 / 4 / 4)",
		benchmark: "Parallel/goroutines=256", metrics: []string{"ratio"}, format: "%.2f"},
	{title: "connections that dblock used at most: of the pool + its own (aim ≤ 4)",
		benchmark: "Parallel/goroutines=256", metrics: []string{"pool-conns", "own-conns"}, format: "%.0f"},
	{title: "64 goroutines, 960 names: pairs per second ÷ pairs of bare commits", benchmark: "Parallel/goroutines=64",
		metrics: []string{"ratio"}, format: "%.2f"},
	{title: "8 greedy processes, one name: hand-offs per second ÷ naive locking (aim ≥ 1)", benchmark: "Handoff/greedy",
		metrics: []string{"naive-ratio"}, format: "%.2f"},
	{title: "the time of a hand-off there ÷ of naive locking, p99 (aim ≤ 1)", benchmark: "Handoff/greedy",
		metrics: []string{"naive-p99-ratio"}, format: "%.2f"},
	{title: "8 greedy processes, one name: hand-offs per second ÷ pairs of bare commits of one goroutine (aim ≥ 0.45)",
		benchmark: "Handoff/greedy", metrics: []string{"ratio"}, format: "%.2f", times: 2},
	{title: "fairness among them (Jain; aim 0.99)", benchmark: "Handoff/greedy", metrics: []string{"jain"},
		format: "%.4f"},
	{title: "fairness among 8 polite processes", benchmark: "Handoff/polite", metrics: []string{"jain"},
		format: "%.4f"},
	{title: "32 new clients, one name: hand-offs per second in their first 4 s ÷ of 8 processes (aim ≥ 0.8)",
		benchmark: "Crowd/fresh=32", metrics: []string{"ratio"}, format: "%.2f"},
	{title: "32 goroutines of one process, one name: grants per second ÷ of 8 processes (aim ≥ 16)",
		benchmark: "Crowd/goroutines=32,processes=1", metrics: []string{"ratio"}, format: "%.1f"},
	{title: "8 goroutines of each of 4 processes, one name: grants per second ÷ of 8 processes (aim ≥ 4)",
		benchmark: "Crowd/goroutines=8,processes=4", metrics: []string{"ratio"}, format: "%.1f"},
	{title: "`TryLock` of a name on which 10,000 of the same client wait: time ÷ on which 1 waits, medians (aim ≤ 1.5)",
		benchmark: "Waiters", metrics: []string{"trylock-p50-ratio"}, format: "%.2f"},
	{title: "9,000 of them cancelled at once: ms until all are gone (aim ≤ 1,000)", benchmark: "Waiters",
		metrics: []string{"cancel-p50-ms"}, format: "%.0f"},
	{title: "lock time-outs of the server meanwhile (aim 0)", benchmark: "Waiters", metrics: []string{"lock-timeouts"},
		format: "%.0f"},
	{title: "bytes in the client: per waiter (aim ≤ 8,000)", benchmark: "Waiters", metrics: []string{"bytes/waiter"},
		format: "%.0f"},
	{title: "bytes in the client: per held lock (aim ≤ 1,000)", benchmark: "Memory", metrics: []string{"bytes/lock"},
		format: "%.0f"},
	{title: "a pair among 10⁴ / 10⁶ locks of others: time ÷ among 10², medians (aim ≤ 1.5)", benchmark: "Scale/rows",
		metrics: []string{"1e4:pair-p50-ratio", "1e6:pair-p50-ratio"}, format: "%.2f"},
	{title: "a hand-off there", benchmark: "Scale/rows", metrics: []string{"1e4:handoff-p50-ratio",
		"1e6:handoff-p50-ratio"}, format: "%.2f"},
	{title: "a pair beside 10² / 10⁴ waiters of another name: time ÷ beside 1, medians (aim ≤ 1.5)",
		benchmark: "Scale/waiters", metrics: []string{"1e2:pair-p50-ratio", "1e4:pair-p50-ratio"}, format: "%.2f"},
	{title: "a hand-off among those waiters", benchmark: "Scale/waiters", metrics: []string{"1e2:handoff-p50-ratio",
		"1e4:handoff-p50-ratio"}, format: "%.2f"},
	{title: "a hand-off between two clients of `postgres.NewSQL` ÷ of `postgres.New`, medians: listening / polling",
		benchmark: "NewSQL", metrics: []string{"sql-p50-ratio", "polled-p50-ratio"}, format: "%.2f"},
	{title: "a transaction with `LockTx` ÷ one with a bare `SELECT … FOR UPDATE`, medians", benchmark: "LockTx",
		metrics: []string{"p50-ratio"}, format: "%.2f"},
	{title: "a transaction with `Guard` ÷ the same without, medians", benchmark: "Guard",
		metrics: []string{"p50-ratio"}, format: "%.2f"},
	{title: "64 goroutines of one client, a mutex, 2 ms of work: share of the ideal (aim ≥ 0.9) / of the time in " +
		"which one works", benchmark: "Mutex/work=2ms", metrics: []string{"of-ideal", "busy"}, format: "%.2f"},
	{title: "the same with 20 ms", benchmark: "Mutex/work=20ms", metrics: []string{"of-ideal", "busy"}, format: "%.2f"},
	{title: "joins / hand-overs (aim ≤ 1) in the database for 32 grants there", benchmark: "Mutex/work=20ms",
		metrics: []string{"joins/32-grants", "handovers/32-grants"}, format: "%.1f"},
	{title: "64 goroutines of one client, 8 permits, 2 ms of work: per second / ÷ of a mutex (at most 8)",
		benchmark: "Permits/work=2ms/clients=1", metrics: []string{"grants/s", "ratio"}, format: "%.1f"},
	{title: "the same with 20 ms: share of the ideal (aim ≥ 0.9)", benchmark: "Permits/work=20ms/clients=1",
		metrics: []string{"of-ideal"}, format: "%.2f"},
	{title: "the same of 8 clients (aim ≥ 0.9)", benchmark: "Permits/work=20ms/clients=8",
		metrics: []string{"of-ideal"}, format: "%.2f"},
	{title: "64 readers of one client, 2 ms of work: per second / ÷ of a mutex (at most 64)",
		benchmark: "Readers/work=2ms/clients=1", metrics: []string{"grants/s", "ratio"}, format: "%.1f"},
	{title: "the same with 20 ms: share of the ideal (aim ≥ 0.8)", benchmark: "Readers/work=20ms/clients=1",
		metrics: []string{"of-ideal"}, format: "%.2f"},
	{title: "the same of 8 clients (aim ≥ 0.8)", benchmark: "Readers/work=20ms/clients=8",
		metrics: []string{"of-ideal"}, format: "%.2f"},
	{title: "`LockAll` of 10 free names + `Unlock`: time ÷ ten `Lock`s + ten `Unlock`s, medians", benchmark: "LockAll",
		metrics: []string{"p50-ratio"}, format: "%.2f"},
	{title: "wait-for graph of one waiter in 10,000, ms: p50 / p99 (aim on PostgreSQL ≤ 20)", benchmark: "Deadlock",
		metrics: []string{"p50-ms", "p99-ms"}, format: "%.2f"},
	{title: "the first names, names with waiters and sessions among 100,000 locks of 1,000 sessions: time ÷ among " +
		"100 locks of 10, medians (aim ≤ 2)", benchmark: "Look", metrics: []string{"p50-ratio"}, format: "%.2f"},
	{title: "rows that the server reads for them ÷ among 100 locks", benchmark: "Look", metrics: []string{"rows-ratio"},
		format: "%.2f"},
	{title: "1 holder, 200 waiters, 1 client: statements per second beyond the heartbeat, without / with reaper " +
		"(aim ≤ 0.5 without)", benchmark: "Idle", metrics: []string{"1:stmt/s-beyond-heartbeat",
		"1+reaper:stmt/s-beyond-heartbeat"}, format: "%.2f"},
	{title: "the same over 4 clients, per client", benchmark: "Idle", metrics: []string{"4:stmt/s-beyond-heartbeat",
		"4+reaper:stmt/s-beyond-heartbeat"}, format: "%.2f"},
	{title: "connections per client beyond the heartbeat's, 1 client / 4 clients (aim ≤ 2)", benchmark: "Idle",
		metrics: []string{"1+reaper:conns-beyond-heartbeat", "4+reaper:conns-beyond-heartbeat"}, format: "%.2g"},
	{title: "2,000 held locks: rows written per heartbeat (aim 1)", benchmark: "Upkeep",
		metrics: []string{"rows-written/heartbeat"}, format: "%.2f"},
	{title: "SIGKILL of the holder to the next grant, on the same host, TTL 15 s: min / median / max, ms (aim ≤ 300 " +
		"in the median)", benchmark: "Crash/same-host", metrics: []string{"min-ms", "median-ms", "max-ms"},
		format: "%.0f"},
	{title: "the same on another host, TTL 2,000 ms", benchmark: "Crash/another-host",
		metrics: []string{"min-ms", "median-ms", "max-ms"}, format: "%.0f"},
	{title: "the first `Lock` of a process whose predecessor on the host was killed with the lock: time ÷ of a free " +
		"name, medians", benchmark: "Restart", metrics: []string{"p50-ratio"}, format: "%.2f"},
	{title: "that time: min / median / max, ms (aim ≤ 300 in the median)", benchmark: "Restart",
		metrics: []string{"min-ms", "median-ms", "max-ms"}, format: "%.0f"},
	{title: "with crash detection, while all live: a refused `TryLock`, time ÷ without, medians",
		benchmark: "Detection/tries", metrics: []string{"p50-ratio"}, format: "%.2f"},
	{title: "its statements, with / without", benchmark: "Detection/tries",
		metrics: []string{"stmts", "without-stmts"}, format: "%.2f"},
	{title: "a client with its pool, from opening to `Close`, time ÷ without, medians", benchmark: "Detection/clients",
		metrics: []string{"p50-ratio"}, format: "%.2f"},
	{title: "CPU time of a process with one waiter, ms per second: with / without", benchmark: "Detection/waits",
		metrics: []string{"p50-ms", "without-p50-ms"}, format: "%.1f"},
	{title: "statements of that waiter beyond the heartbeat in a second, with / without", benchmark: "Detection/waits",
		metrics: []string{"stmts", "without-stmts"}, format: "%.1f"},
	{title: "pair / two bare commits, median, µs", benchmark: "Pair/names=1", metrics: []string{"p50-pair-µs",
		"p50-reference-µs"}, format: "%.0f"},
	{title: "with `LockTx` / with `SELECT … FOR UPDATE`, µs", benchmark: "LockTx", metrics: []string{"p50-µs",
		"p50-reference-µs"}, format: "%.0f"},
	{title: "with `Guard` / without, µs", benchmark: "Guard", metrics: []string{"p50-µs", "p50-reference-µs"},
		format: "%.0f"},
	{title: "64 goroutines: pairs / pairs of bare commits per second", benchmark: "Parallel/goroutines=64",
		metrics: []string{"pairs/s", "reference/s"}, format: "%.0f"},
	{title: "256 goroutines: pairs / pairs of bare commits per second", benchmark: "Parallel/goroutines=256",
		metrics: []string{"pairs/s", "reference/s"}, format: "%.0f"},
	{title: "8 greedy processes: grants / commits in sequence per second", benchmark: "Handoff/greedy",
		metrics: []string{"grants/s", "reference/s"}, format: "%.0f"},
	{title: "naive locking by 8 processes: per second", benchmark: "Handoff/greedy", metrics: []string{"naive/s"},
		format: "%.0f"},
	{title: "hand-off, greedy: p50 / p99, µs", benchmark: "Handoff/greedy", metrics: []string{"p50-µs", "p99-µs"},
		format: "%.0f"},
	{title: "hand-off, naive locking: p99, µs", benchmark: "Handoff/greedy", metrics: []string{"naive-p99-µs"},
		format: "%.0f"},
	{title: "hand-off, polite: p50 / p99, µs", benchmark: "Handoff/polite", metrics: []string{"p50-µs", "p99-µs"},
		format: "%.0f"},
	{title: "32 goroutines of one process: grants per second; p50 / p99, µs",
		benchmark: "Crowd/goroutines=32,processes=1", metrics: []string{"grants/s", "p50-µs", "p99-µs"},
		format: "%.0f"},
	{title: "`TryLock` where 10,000 wait / where 1 waits, median, µs", benchmark: "Waiters",
		metrics: []string{"trylock-crowded-p50-µs", "trylock-lonely-p50-µs"}, format: "%.0f"},
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	f, err := figures.Read(in)
	if err != nil {
		return err
	}
	head, rule := "| |", "|---|"
	for _, k := range figures.Kinds {
		if f.Servers[k.Name] != "" {
			head, rule = head+" "+k.Title+" |", rule+"---|"
		}
	}
	fmt.Fprintf(out, "%s\n%s\n", head, rule)
	for _, l := range table {
		if cells, any := l.cells(f); any {
			fmt.Fprintf(out, "| %s |%s\n", l.title, cells)
		}
	}
	fmt.Fprintln(out)
	for _, k := range figures.Kinds {
		if f.Servers[k.Name] != "" {
			fmt.Fprintf(out, "- %s %s\n", k.Title, f.Servers[k.Name])
		}
	}
	return nil
}

// cells returns the cells of the measured kinds, and whether any has a figure.
func (l line) cells(f figures.Figures) (cells string, any bool) {
	for _, k := range figures.Kinds {
		if f.Servers[k.Name] == "" {
			continue
		}
		var cell []string
		for _, m := range l.metrics {
			v, ok := f.Metric(l.benchmark, k.Name, m)
			if !ok {
				continue
			}
			if l.times != 0 {
				v *= l.times
			}
			cell, any = append(cell, fmt.Sprintf(l.format, v)), true
		}
		cells += " " + strings.Join(cell, " / ") + " |"
	}
	return cells, any
}
