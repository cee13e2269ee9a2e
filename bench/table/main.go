// Command table turns what the benchmarks print into the Markdown of README.md.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// line is a row of the table: of which benchmark, and its metrics joined by " / ".
type line struct {
	title, benchmark string
	metrics          []string
	format           string // of one metric
}

var table = []line{
	{"`Lock` + `Unlock`, one free name: time ÷ two bare commits, of the medians / of the sums (aim ≤ 1.25)", "Pair/names=1", []string{"p50-ratio", "ratio"}, "%.2f"},
	{"the same over 1,000 names", "Pair/names=1000", []string{"p50-ratio", "ratio"}, "%.2f"},
	{"64 goroutines, 960 names: pairs per second ÷ pairs of bare commits", "Parallel", []string{"ratio"}, "%.2f"},
	{"a transaction with `LockTx` ÷ one with a bare `SELECT … FOR UPDATE`, medians", "LockTx", []string{"p50-ratio"}, "%.2f"},
	{"a transaction with `Guard` ÷ the same without, medians", "Guard", []string{"p50-ratio"}, "%.2f"},
	{"8 greedy processes, one name: grants per second ÷ commits in sequence (aim ≥ 0.4, MySQL and MariaDB 0.25)", "Handoff/greedy", []string{"ratio"}, "%.2f"},
	{"fairness among them (Jain; aim 0.99)", "Handoff/greedy", []string{"jain"}, "%.4f"},
	{"fairness among 8 polite processes", "Handoff/polite", []string{"jain"}, "%.4f"},
	{"64 readers of one name, 2 ms of work: per second ÷ of a mutex", "Sharing/readers", []string{"ratio"}, "%.1f"},
	{"64 goroutines, 8 permits, 2 ms of work: per second ÷ of a mutex (at most 8)", "Sharing/permits", []string{"ratio"}, "%.1f"},
	{"`LockAll` of 10 free names + `Unlock`: time ÷ ten `Lock`s + ten `Unlock`s, medians", "LockAll", []string{"p50-ratio"}, "%.2f"},
	{"who waits for whom, one waiter's question in 10,000, ms: p50 / p99 (aim on PostgreSQL ≤ 20)", "Deadlock", []string{"p50-ms", "p99-ms"}, "%.2f"},
	{"1 holder, 200 waiters, 1 client: statements per second beyond the heartbeat, without / with reaper (aim ≤ 1)", "Idle", []string{"1:stmt/s-beyond-heartbeat", "1+reaper:stmt/s-beyond-heartbeat"}, "%.2f"},
	{"the same over 4 clients, per client", "Idle", []string{"4:stmt/s-beyond-heartbeat", "4+reaper:stmt/s-beyond-heartbeat"}, "%.2f"},
	{"connections per client beyond the heartbeat's, 1 client / 4 clients (aim ≤ 2)", "Idle", []string{"1+reaper:conns-beyond-heartbeat", "4+reaper:conns-beyond-heartbeat"}, "%.2g"},
	{"2,000 held locks: rows written per heartbeat (aim 1)", "Upkeep", []string{"rows-written/heartbeat"}, "%.2f"},
	{"SIGKILL of the holder to the next grant, TTL 2,000 ms: min / median / max, ms", "Crash", []string{"min-ms", "median-ms", "max-ms"}, "%.0f"},
	{"pair / two bare commits, median, µs", "Pair/names=1", []string{"p50-pair-µs", "p50-reference-µs"}, "%.0f"},
	{"with `LockTx` / with `SELECT … FOR UPDATE`, µs", "LockTx", []string{"p50-µs", "p50-reference-µs"}, "%.0f"},
	{"with `Guard` / without, µs", "Guard", []string{"p50-µs", "p50-reference-µs"}, "%.0f"},
	{"64 goroutines: pairs / pairs of bare commits per second", "Parallel", []string{"pairs/s", "reference/s"}, "%.0f"},
	{"8 greedy processes: grants / commits in sequence per second", "Handoff/greedy", []string{"grants/s", "reference/s"}, "%.0f"},
	{"hand-off, greedy: p50 / p99, µs", "Handoff/greedy", []string{"p50-µs", "p99-µs"}, "%.0f"},
	{"hand-off, polite: p50 / p99, µs", "Handoff/polite", []string{"p50-µs", "p99-µs"}, "%.0f"},
}

var kinds = []struct{ name, title string }{
	{"sqlite", "SQLite"}, {"postgres", "PostgreSQL"}, {"mysql", "MySQL"}, {"mariadb", "MariaDB"},
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	figures, servers, err := read(in)
	if err != nil {
		return err
	}
	head, rule := "| |", "|---|"
	for _, k := range kinds {
		if servers[k.name] != "" {
			head, rule = head+" "+k.title+" |", rule+"---|"
		}
	}
	fmt.Fprintf(out, "%s\n%s\n", head, rule)
	for _, l := range table {
		fmt.Fprintf(out, "| %s |", l.title)
		for _, k := range kinds {
			if servers[k.name] == "" {
				continue
			}
			var cell []string
			for _, m := range l.metrics {
				if v, ok := figures[l.benchmark+"/"+k.name+" "+m]; ok {
					cell = append(cell, fmt.Sprintf(l.format, v))
				}
			}
			fmt.Fprintf(out, " %s |", strings.Join(cell, " / "))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
	for _, k := range kinds {
		if servers[k.name] != "" {
			fmt.Fprintf(out, "- %s %s\n", k.title, servers[k.name])
		}
	}
	return nil
}

// read collects the metrics by "benchmark/kind unit", and the versions by kind.
func read(in io.Reader) (figures map[string]float64, servers map[string]string, err error) {
	figures, servers = map[string]float64{}, map[string]string{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 2 && fields[0] == "server":
			servers[fields[1]] = strings.Join(fields[2:], " ")
		case len(fields) > 3 && strings.HasPrefix(fields[0], "Benchmark"):
			name := strings.TrimPrefix(fields[0], "Benchmark")
			if dash := strings.LastIndexByte(name, '-'); dash > 0 {
				name = name[:dash] // GOMAXPROCS
			}
			for i := 2; i+1 < len(fields); i += 2 {
				v, err := strconv.ParseFloat(fields[i], 64)
				if err != nil {
					return nil, nil, fmt.Errorf("%q: %w", lines.Text(), err)
				}
				figures[name+" "+fields[i+1]] = v
			}
		}
	}
	return figures, servers, lines.Err()
}
