package main

import (
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/dblock-go/dblock/inspect"
)

// pageRows is the number of rows that are read before a table is printed. They decide the width of
// its columns.
const pageRows = 200

// listing prints rows of one kind as a table, or as one JSON object a line.
type listing[T any] struct {
	header table.Row
	row    func(T) table.Row
	none   string         // printed if there are no rows
	after  func(T) string // how to list the rows after this one; nil: with --limit alone
}

// limits adds --limit, which is meant for people: it does not limit what a program reads.
func limits(o *options, c *cobra.Command, rows uint, what string) (limit func() uint) {
	given := c.Flags().Uint("limit", rows, "at most so many "+what+"; 0: all (default with --json: all)")
	return func() uint {
		if o.json && !c.Flags().Changed("limit") {
			return 0
		}
		return *given
	}
}

// list prints the first rows, and says on standard error whether there are more.
func (l listing[T]) list(o *options, c *cobra.Command, w io.Writer, rows iter.Seq2[T, error], limit uint) error {
	var last T
	seen := func(yield func(T, error) bool) {
		for row, err := range rows {
			if !yield(row, err) {
				return
			}
			last = row
		}
	}
	n, more, err := l.print(w, o.json, seen, limit)
	if err == nil && more {
		next := ""
		if l.after != nil {
			next = l.after(last) + ", or "
		}
		c.PrintErrf("The first %d. To go on: %s--limit 0 for all.\n", n, next)
	}
	return err
}

// print prints rows as they come, and returns their number. It stops after most rows (0: never),
// and reports whether there are more.
func (l listing[T]) print(
	w io.Writer, asJSON bool, rows iter.Seq2[T, error], most uint,
) (n uint, more bool, err error) {
	var page []T
	flush := func() {
		if len(page) > 0 && !asJSON {
			_, err = fmt.Fprintln(w, l.table(page))
		}
		page = page[:0]
	}
	for row, failed := range rows {
		if failed != nil {
			flush()
			return n, false, failed
		}
		if most > 0 && n == most {
			more = true
			break
		}
		n++
		if asJSON {
			err = writeJSON(w, row)
		} else if page = append(page, row); len(page) == pageRows {
			flush()
		}
		if err != nil {
			return n, false, err
		}
	}
	flush()
	if n == 0 && !asJSON && err == nil {
		_, err = fmt.Fprintln(w, l.none)
	}
	return n, more, err
}

func (l listing[T]) table(rows []T) string {
	t := table.NewWriter()
	t.SetStyle(plain)
	t.SuppressTrailingSpaces() // a padded long line would wrap into empty ones
	t.AppendHeader(l.header)
	for _, row := range rows {
		cells := l.row(row)
		for i, cell := range cells {
			if text, is := cell.(string); is {
				cells[i] = printable(text)
			}
		}
		t.AppendRow(cells)
	}
	return t.Render()
}

// printable returns a text for a terminal. Names, hosts and queries are written by others: a text
// that would move the cursor, or end the line, is quoted.
func printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}

// plain has columns and nothing else, for people and for awk.
var plain = table.Style{
	Name:   "plain",
	Box:    table.BoxStyle{PaddingRight: "  "},
	Format: table.FormatOptions{Header: text.FormatUpper},
}

// age formats the time since a moment.
func age(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return span(time.Since(since))
}

// span formats a duration with two units at most.
func span(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d < time.Minute:
		return sign + d.Round(100*time.Millisecond).String()
	case d < time.Hour:
		if text, whole := strings.CutSuffix(d.Round(time.Second).String(), "m0s"); whole {
			return sign + text + "m"
		}
		return sign + d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%s%dh%02dm", sign, d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%s%dd%02dh", sign, d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// ends formats the time that a participant has left.
func ends(p inspect.Participant) string {
	switch {
	case p.Buried != "":
		return "crashed"
	case !p.Alive:
		return "expired"
	}
	return span(time.Until(p.Until))
}

// clock formats a time in the local zone.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// process identifies a participant: host, process ID, thread.
func process(p inspect.Participant) string {
	who := fmt.Sprintf("%s:%d", p.Host, p.PID)
	if p.Thread != "" {
		who += " " + p.Thread
	}
	return who
}

// claim describes how a participant holds a name, or wants it.
func claim(p inspect.Participant, of int) string {
	switch {
	case p.Candidate && p.Token == 0:
		return "the lead"
	case p.Permits > 0:
		return fmt.Sprintf("%d of %d", p.Permits, of)
	case p.Shared:
		return "shared"
	}
	return "exclusive"
}
