package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if what := os.Getenv("PEERS_CHILD"); what != "" {
		err = beChild(ctx, what)
	} else {
		d := flag.Duration("for", 3*time.Second, "the time of one measurement")
		only := flag.String("only", "", "a `regexp` of the peers to measure (default: all that have a server)")
		crashes := flag.Bool("crashes", false, "measure nothing but crashes")
		flag.Parse()
		err = compare(ctx, *d, *only, *crashes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// compare measures the peers and prints the figures.
func compare(ctx context.Context, d time.Duration, only string, crashes bool) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dblock-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at, err := findServers(ctx, dir)
	if err != nil {
		return err
	}
	defer at.stop()
	f := figures{versions: at.versions, load: load(), of: d}
	for _, p := range peers {
		s := subject{p, at.at[p.server]}
		if s.at == "" || !chosen.MatchString(p.name) {
			continue
		}
		s.crashes = s.crashes || crashes
		if !p.reference {
			if err := excludes(ctx, p, s.at); err != nil {
				return fmt.Errorf("%s is not measured: %w", p.name, err)
			}
		}
		f.rows = append(f.rows, row{peer: s.peer})
	}
	if err := f.measure(ctx, at.at); err != nil {
		return err
	}
	return f.print(os.Stdout)
}

// measure runs each workload on one peer after the other, so that they meet the same machine. The
// crashes of all peers come at once: they wait, and cost nothing.
func (f *figures) measure(ctx context.Context, at map[string]string) error {
	for w, load := range workloads {
		for i := range f.rows {
			r := &f.rows[i]
			if r.crashes {
				continue
			}
			figures := make([]float64, len(load.heads))
			if !r.reference || !load.locks {
				var err error
				if figures, err = load.run(ctx, subject{r.peer, at[r.server]}, f.of); err != nil {
					return fmt.Errorf("%s, %s: %w", r.name, load.heads[0], err)
				}
			}
			r.figures = append(r.figures, figures)
			fmt.Fprintf(os.Stderr, "%d/%d %-18s %s %.4g\n", w+1, len(workloads), r.name, load.heads[0], figures)
		}
	}
	var wait sync.WaitGroup
	errs := make(chan error, len(f.rows))
	for i := range f.rows {
		r := &f.rows[i]
		if r.reference {
			continue
		}
		wait.Go(func() {
			s := subject{r.peer, at[r.server]}
			var err error
			if r.crashed, err = crash(ctx, s, commonTTL); err == nil && r.ttl > 0 {
				r.crashedByDefault, err = crash(ctx, s, 0)
			}
			if err != nil {
				errs <- fmt.Errorf("%s, crash: %w", r.name, err)
			}
		})
	}
	wait.Wait()
	close(errs)
	return <-errs
}
