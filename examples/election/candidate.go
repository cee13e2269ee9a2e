package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/election"
	"github.com/dblock-go/dblock/examples/internal/database"
)

// candidacy is the environment variable that makes this program a candidate.
const candidacy = "DBLOCK_EXAMPLE_ELECTION_CANDIDATE"

// assignment is the configuration of a candidate.
type assignment struct {
	Source   database.Source
	TTL      time.Duration
	Election string
	Name     string
}

// stand campaigns until the standard input ends.
func stand(text string) (err error) {
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	db, err := a.Source.Open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	client, err := dblock.New(db.EngineOverSQL(), dblock.WithTTL(a.TTL))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	return election.New(client).Campaign(ctx, a.Election, a.lead, election.Metadata(map[string]string{
		"name": a.Name, "address": fmt.Sprintf("process %d", os.Getpid()), // a server's would be its host and port
	}))
}

// lead is the work of a leader, which ends with its context.
func (a assignment) lead(ctx context.Context, t *election.Term) error {
	for {
		select {
		case reason := <-t.Asked():
			fmt.Printf("    %s is asked to go: %s\n", a.Name, reason)
			t.Resign()
		case <-ctx.Done():
			fmt.Printf("    %s leads no more: %v\n", a.Name, context.Cause(ctx))
			return nil
		}
	}
}

// candidate is a process that campaigns.
type candidate struct {
	*exec.Cmd
	in io.Closer
}

func start(a assignment) (candidate, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return candidate{}, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), candidacy+"="+string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return candidate{}, err
	}
	return candidate{cmd, in}, cmd.Start()
}

// finish ends a candidate regularly.
func (c candidate) finish() error {
	return errors.Join(c.in.Close(), c.Wait())
}
