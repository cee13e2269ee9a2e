// Command election shows one leader at a time over several processes. Three of them stand for
// election. The program observes the leader, kills it, asks the next one to resign, and ends the
// processes regularly.
//
//	go run ./examples/election                                      on an SQLite file of its own
//	go run ./examples/election -dsn postgres://user:pass@host/db    on PostgreSQL
//	go run ./examples/election -dsn mysql://user:pass@host/db       on MySQL or MariaDB
//
// candidate.go shows the use of dblock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/examples/internal/database"
	"github.com/dblock-go/dblock/migrate"
)

func main() {
	if text, ok := os.LookupEnv(candidacy); ok {
		exit(stand(text))
	}
	dsn := flag.String("dsn", "", database.Usage)
	ttl := flag.Duration("ttl", 2*time.Second, "after what time without a sign of life a leader is succeeded")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, *dsn, *ttl))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "election:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, dsn string, ttl time.Duration) (err error) {
	db, err := database.Open(ctx, dsn, "election")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrate.Up(ctx, db.SQL, db.Engine); err != nil {
		return err
	}
	client, err := dblock.New(db.EngineOverSQL(), dblock.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	name := fmt.Sprintf("indexer %d", time.Now().UnixNano()) // a new name for each run of this program
	fmt.Printf("Who leads %q, on %s:\n", name, db.Place)

	next, stop := iter.Pull2(election.New(client).Observe(ctx, name))
	defer stop()
	p := press{next: next}
	running := map[string]candidate{}
	defer func() {
		for _, c := range running { // after a failure
			err = errors.Join(err, c.Process.Kill(), c.Wait())
		}
	}()
	for _, label := range []string{"Ada", "Grace", "Edsger"} {
		c, err := start(assignment{db.Source, ttl, name, label})
		if err != nil {
			return err
		}
		running[label] = c
	}
	first, err := p.successor(0)
	if err != nil {
		return err
	}
	fmt.Printf("%s is killed.\n", first)
	killed := time.Now()
	if err := running[first].Process.Kill(); err != nil {
		return err
	}
	_ = running[first].Wait() // an error: it was killed
	delete(running, first)
	second, err := p.successor(p.token)
	if err != nil {
		return err
	}
	fmt.Printf("That took %.1f s: the TTL is %v.\n", time.Since(killed).Seconds(), ttl)
	third := second
	for third == second { // it leads again where no other candidate waits, such as one that has just lost its session
		if err := client.Ask(ctx, name, "maintenance"); err != nil {
			return err
		}
		if third, err = p.successor(p.token); err != nil {
			return err
		}
	}
	fmt.Println("Both that are left go in good order, the leader first.")
	for _, label := range []string{third, second} {
		if err := running[label].finish(); err != nil {
			return err
		}
		delete(running, label)
	}
	for p.leader.Token != 0 && err == nil {
		err = p.read()
	}
	return err
}

// press prints every change.
type press struct {
	next   func() (election.Leader, error, bool)
	leader election.Leader
	token  int64 // of the latest
}

func (p *press) read() (err error) {
	p.leader, err, _ = p.next()
	switch l := p.leader; {
	case err != nil:
		return err
	case l.Token == 0:
		fmt.Println("  no leader")
		return nil
	case l.Token <= p.token:
		return fmt.Errorf("token %d after %d", l.Token, p.token)
	default:
		fmt.Printf("  %s leads since %s, token %d, %s\n", l.Metadata["name"], l.Since.Format("15:04:05.000"), l.Token,
			l.Metadata["address"])
		p.token = l.Token
		return nil
	}
}

// successor waits for the term after the one with a token.
func (p *press) successor(token int64) (leader string, err error) {
	for p.leader.Token <= token {
		if err := p.read(); err != nil {
			return "", err
		}
	}
	return p.leader.Metadata["name"], nil
}
