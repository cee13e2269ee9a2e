// Command report reads from its standard input what go test -json writes, and prints what a person
// wants of it: a line for each package that passed; every failure in full, as soon as the test has
// ended, with the command that repeats it; where the run is, when nothing else was printed for a
// while; at the end why tests were left out, and what took longest. With -v it prints all that the
// tests said, as they say it.
//
// It judges nothing: whether the tests passed is the exit status of go test.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// quiet is how long nothing may be printed before a line says where the run is.
const quiet = 15 * time.Second

func main() {
	verbose := flag.Bool("v", false, "print all that the tests said")
	module := flag.String("m", "", "a module path that lists leave out of the names of packages")
	packages := flag.Int("n", 0, "how many packages go test was given")
	repeat := flag.String("repeat", "go test", "the command that repeats a test, before -run")
	flag.Parse()
	out := &clocked{Writer: os.Stdout, last: time.Now()}
	r := newReport(out, *verbose, *module, *packages, *repeat)
	if err := follow(r, out, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r.end()
}

// clocked knows when something was written last.
type clocked struct {
	io.Writer
	last time.Time
}

func (c *clocked) Write(p []byte) (int, error) {
	c.last = time.Now()
	return c.Writer.Write(p)
}

// follow reads events to their end, and has the report say where the run is meanwhile.
func follow(r *report, out *clocked, in io.Reader) error {
	lines, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		defer close(lines)
		all := bufio.NewReader(in)
		for {
			line, err := all.ReadString('\n')
			lines <- line
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				if err := <-ended; err != io.EOF {
					return err
				}
				return nil
			}
			r.line(line)
		case <-tick.C:
			if time.Since(out.last) >= quiet {
				r.progress(time.Since(began))
			}
		}
	}
}

// line takes a line of the events. What is no event is printed as it is.
func (r *report) line(line string) {
	var e event
	switch {
	case line == "":
	case line[0] != '{' || json.Unmarshal([]byte(line), &e) != nil || e.Action == "":
		fmt.Fprint(r.out, line)
	default:
		r.on(e)
	}
}
