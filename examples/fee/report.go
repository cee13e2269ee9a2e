package main

import (
	"fmt"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/dblock-go/dblock/migrate"
)

func printIntroduction(o options, db store) {
	fmt.Printf("%s with %s each deduct a 3 %% fee, %s per server,\nfrom one account of %s.\n%s.\n",
		count(o.servers, "server"), count(o.workers, "worker"), count(o.rounds, "time"), money(deposit), db.Place)
}

// printServers prints a table of the servers' results.
func printServers(r result) {
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"server", "process", "fees", "grants", "wait p50", "wait p99", "last token"})
	for _, s := range r.tallies {
		name := fmt.Sprint(s.number)
		if s.killed {
			name += " killed"
		}
		t.AppendRow(table.Row{name, s.pid, s.fees, s.grants, rounded(s.wait(50)), rounded(s.wait(99)), s.token})
	}
	right := []table.ColumnConfig{}
	for n := 2; n <= 7; n++ {
		right = append(right, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	fmt.Println()
	t.Render()
}

// printOutcome reports in one or two sentences whether the account is correct.
func printOutcome(r result) {
	took := rounded(r.took)
	switch {
	case r.exact() && !r.locked:
		fmt.Printf("%s: none of %d fees was lost in %s, this time and by luck.\n", r.title, r.fees, took)
	case r.exact():
		fmt.Printf("%s: exact to the cent, none of %d fees was lost in %s.\n  The balance is %s.\n",
			r.title, r.fees, took, money(r.final.balance))
	default:
		fmt.Printf("%s: %d of %d fees were lost in %s.\n  The balance is %s and should be %s.\n",
			r.title, r.lost(), r.fees, took, money(r.final.balance), money(r.right().balance))
	}
}

func printLeftovers(db store) {
	if db.Engine != migrate.SQLite {
		fmt.Printf("\nThe table %s is dropped again. dblock's own tables stay.\n", tableName)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
