package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrate"
	"github.com/dblock-go/dblock/mysql"
	"github.com/dblock-go/dblock/postgres"
	"github.com/dblock-go/dblock/sqlite"
)

// serveCommand is the argument with which the program starts itself as a server.
const serveCommand = "serve"

const (
	closeTimeout = 10 * time.Second // to release its locks, after its job
	// endTimeout bounds the end of a server after its input has ended: locks that it has not
	// released are free after the TTL.
	endTimeout = 3 * time.Second
)

// serveMain is the main function of a server.
func serveMain() int {
	// Ctrl-C reaches every process of the terminal. The program decides, and closes the servers'
	// input.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	tell := teller()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	input := bufio.NewReader(os.Stdin)
	var j job
	line, err := input.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &j)
	}
	if err != nil {
		tell(report{Kind: hasFailed, Text: "the job: " + err.Error()})
		return 1
	}
	signals := make(chan struct{}, 2)
	go func() {
		for {
			if _, err := input.ReadBytes('\n'); err != nil {
				break
			}
			signals <- struct{}{}
		}
		cancel()
		time.AfterFunc(endTimeout, func() { os.Exit(1) })
	}()
	if err := serve(ctx, j, tell, signals); err != nil && ctx.Err() == nil {
		tell(report{Kind: hasFailed, Text: err.Error()})
		return 1
	}
	return 0
}

// teller writes reports to the standard output, one line each.
func teller() func(report) {
	var mu sync.Mutex // guards encoder
	encoder := json.NewEncoder(os.Stdout)
	return func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(r) // an error: the program is gone, and our input ends in this moment
	}
}

// serve opens the database and does the job with its engine.
func serve(ctx context.Context, j job, tell func(report), signals <-chan struct{}) error {
	opened, err := j.Source.Open(ctx)
	if err != nil {
		return err
	}
	defer opened.Close()
	db := store{opened}
	switch j.Source.Engine {
	case migrate.Postgres:
		return do(ctx, postgres.New(db.Pool), db.accounts(), j, tell, signals)
	case migrate.MySQL:
		return do(ctx, mysql.New(db.SQL), db.accounts(), j, tell, signals)
	default:
		return do(ctx, sqlite.New(db.SQL), db.accounts(), j, tell, signals)
	}
}

// do does a job: half of it, then the accident, then the rest.
func do[TX any](
	ctx context.Context, engine dblock.Engine[TX], accounts accounts, j job, tell func(report), signals <-chan struct{},
) (err error) {
	settings := []dblock.Option{dblock.WithTTL(j.TTL)}
	if j.Undetected {
		settings = append(settings, dblock.WithoutCrashDetection())
	}
	client, err := dblock.New(engine, settings...) // one for the whole process
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, client.Close(ctx))
	}()
	s := &server[TX]{client, accounts, tell}
	tell(report{Kind: isReady})
	if err := await(ctx, signals); err != nil {
		return err
	}
	if !j.Locked {
		return s.work(ctx, j.Workers, j.Rounds, s.deductUnlocked)
	}
	half := j.Rounds / 2
	if err := s.work(ctx, j.Workers, half, s.deduct); err != nil {
		return err
	}
	switch j.HalfTime {
	case stayInside:
		err = s.stay(ctx)
	case waitForSignal:
		err = await(ctx, signals)
	}
	if err != nil {
		return err
	}
	return s.work(ctx, j.Workers, j.Rounds-half, s.deduct)
}

func await(ctx context.Context, signals <-chan struct{}) error {
	select {
	case <-signals:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
