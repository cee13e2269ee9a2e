package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// child is another process of this program, which has a client of its own.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// child starts a process and waits until it is ready. ttl 0 is the system's own.
func (s subject) child(ctx context.Context, what, name string, ttl time.Duration) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, program)}
	c.cmd.Env = append(os.Environ(), "PEERS_CHILD="+what, "PEERS_PEER="+s.name, "PEERS_AT="+s.at, "PEERS_NAME="+name,
		"PEERS_TTL="+ttl.String())
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if line := c.line(); line != "ready" {
		c.end()
		return nil, fmt.Errorf("a process said %q instead of ready", line)
	}
	return c, nil
}

func (c *child) line() string {
	c.out.Scan()
	return strings.TrimSpace(c.out.Text())
}

// contend returns the turns of the process, which end with the time.
func (c *child) contend(who int, until time.Duration) (turns []turn, err error) {
	if _, err := fmt.Fprintln(c.in, int64(until)); err != nil {
		return nil, err
	}
	for {
		line := c.line()
		if line == "done" {
			return turns, nil
		}
		t := turn{who: who}
		if _, err := fmt.Sscan(line, (*int64)(&t.granted), (*int64)(&t.unlocked)); err != nil {
			return nil, fmt.Errorf("a process said %q: %w", line, err)
		}
		turns = append(turns, t)
	}
}

// kill is the crash of the process.
func (c *child) kill() error { return c.cmd.Process.Kill() }

// end lets the process close its client.
func (c *child) end() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// beChild is the main of such a process.
func beChild(ctx context.Context, what string) error {
	p, ok := peerNamed(os.Getenv("PEERS_PEER"))
	if !ok {
		return fmt.Errorf("no peer %q", os.Getenv("PEERS_PEER"))
	}
	ttl, err := time.ParseDuration(os.Getenv("PEERS_TTL"))
	if err != nil {
		return err
	}
	at, name := os.Getenv("PEERS_AT"), os.Getenv("PEERS_NAME")
	l, err := p.openFor(ctx, at, ttl)
	if err != nil {
		return err
	}
	defer l.close()
	if what == "hold" {
		if _, err := l.lock(ctx, name); err != nil {
			return err
		}
		fmt.Println("ready")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	if err := pair(ctx, l, name); err != nil {
		return err
	}
	fmt.Println("ready")
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	for in.Scan() {
		var until time.Duration
		if _, err := fmt.Sscan(in.Text(), (*int64)(&until)); err != nil {
			return err
		}
		turns, err := contend(ctx, l, 0, name, until)
		if err != nil {
			return err
		}
		for _, t := range turns {
			fmt.Fprintln(out, int64(t.granted), int64(t.unlocked))
		}
		fmt.Fprintln(out, "done")
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return in.Err()
}
