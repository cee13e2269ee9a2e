package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
)

// relayProcess is the environment variable that makes this program a relay.
const relayProcess = "DBLOCK_EXAMPLE_OUTBOX_RELAY"

// assignment is the configuration of a relay.
type assignment struct {
	Source database.Source
	TTL    time.Duration
	Name   string
}

// serve is a relay until its standard input ends. It publishes to its standard output. Each line of
// its input confirms a message.
func serve(text string) (err error) {
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	confirmed := make(chan struct{})
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			select {
			case confirmed <- struct{}{}:
			case <-ctx.Done():
			}
		}
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
	output := json.NewEncoder(os.Stdout)
	return relay{db, client, func(ctx context.Context, m message) error {
		if err := output.Encode(m); err != nil {
			return err
		}
		select {
		case <-confirmed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}.run(ctx)
}

// process is a relay as the program sees it.
type process struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.Reader
	read   chan struct{} // closed when the broker has received all that the relay published
	killed bool          // by the broker; to be read once read is closed
}

func startProcess(a assignment) (*process, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: a.Name, cmd: exec.Command(self), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), relayProcess+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// confirm tells the relay that its message has arrived.
func (p *process) confirm() { _, _ = fmt.Fprintln(p.in) } // an error: the relay has ended

// finish ends the relay and returns its error. Being killed is none.
func (p *process) finish() error {
	_ = p.in.Close() // an error: the relay has ended
	<-p.read
	if err := p.cmd.Wait(); err != nil && !p.killed {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}
