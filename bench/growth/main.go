// Command growth shows what one server carries, of the output of the benchmarks that bench/scale
// runs: tables with the figures and how they grow, and plots. It leaves out missing figures.
//
//	go run ./growth <scale.txt                              prints the tables
//	go run ./growth -page ../docs/scale.md <scale.txt       puts them into a page, and draws the plots
//
// The tables stand in the page between two comments. The plots go to the folder pictures beside it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dblock-go/dblock/bench/figures"
)

// The comments in a page between which the tables stand.
const (
	begin = "<!-- bench/scale writes from here -->\n"
	end   = "<!-- to here -->\n"
)

func main() {
	page := flag.String("page", "", "the `file` into which the tables are put")
	flag.Parse()
	if err := run(os.Stdin, *page); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, page string) error {
	f, err := figures.Read(in)
	if err != nil {
		return err
	}
	if page == "" {
		fmt.Print(tables(f))
		return nil
	}
	before, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	after, err := between(string(before), tables(f))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	for name, c := range plots(f) {
		if err := c.Save(filepath.Join(filepath.Dir(page), "pictures", name)); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(after), 0o644)
}

// between replaces what stands between the comments of a page.
func between(page, text string) (string, error) {
	head, rest, found := strings.Cut(page, begin)
	_, tail, ends := strings.Cut(rest, end)
	if !found || !ends {
		return "", errors.New("the page lacks the comments between which the tables stand")
	}
	return head + begin + text + end + tail, nil
}
