package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
)

// lateWorker is the environment variable that makes this program the stopped worker.
const lateWorker = "DBLOCK_EXAMPLE_GUARD_LATE"

// assignment is the configuration of that worker.
type assignment struct {
	Source database.Source
	TTL    time.Duration
}

// stopped lets a second process take the lock, stops it, takes the lock over after the TTL, and
// lets the process continue.
func stopped(ctx context.Context, w worker, ttl time.Duration) error {
	late, says, err := start(ctx, assignment{w.db.Source, ttl})
	if err != nil {
		return err
	}
	defer func() { // if it has not ended by itself
		_ = late.Process.Kill()
		_ = late.Wait()
	}()
	if err := says("holds"); err != nil {
		return err
	}
	if err := w.db.WhileNobodyWrites(ctx, func() error { return suspend(late.Process) }); err != nil {
		return err
	}
	fmt.Println("It is stopped in the middle of its work.")
	began := time.Now()
	err = w.work(ctx, "the successor", func(context.Context) {
		fmt.Printf("That took %.1f s: the TTL is %v.\n", time.Since(began).Seconds(), ttl)
	})
	if err != nil {
		return err
	}
	if err := resume(late.Process); err != nil {
		return err
	}
	fmt.Println("The late worker continues, and does not check its context.")
	if err := says("refused"); err != nil {
		return err
	}
	return late.Wait()
}

// start starts the late worker. says waits for a line of the worker that contains a word, and
// prints it.
func start(ctx context.Context, a assignment) (cmd *exec.Cmd, says func(word string) error, err error) {
	source, err := json.Marshal(a)
	if err != nil {
		return nil, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), lateWorker+"="+string(source))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	lines := bufio.NewScanner(out)
	says = func(word string) error {
		for lines.Scan() {
			fmt.Println(lines.Text())
			if strings.Contains(lines.Text(), word) {
				return nil
			}
		}
		return fmt.Errorf("the late worker ended without saying that it %s", word)
	}
	return cmd, says, cmd.Start()
}

// beLate is the stopped worker: it works until its lock is lost, and then tries to write
// nevertheless.
func beLate(ctx context.Context, source string) (err error) {
	var a assignment
	if err := json.Unmarshal([]byte(source), &a); err != nil {
		return err
	}
	db, err := a.Source.Open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	w, err := newWorker(db, a.TTL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.client.Close(ctx)) }()
	err = w.work(ctx, "the late worker", func(ctx context.Context) { <-ctx.Done() })
	if !errors.Is(err, dblock.ErrLost) {
		return fmt.Errorf("the late write was not refused: %w", err)
	}
	fmt.Printf("the late worker's write was refused: %v\n", err)
	return nil
}
