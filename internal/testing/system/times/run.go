package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// spent is what a test binary has spent, with the processes that it started and waited for.
type spent struct {
	Package string // its folder below that of the run
	Wall    time.Duration
	User    time.Duration
	Kernel  time.Duration
}

// run runs a test binary with its profile, and leaves what it has spent in a file of the folder.
// Signals go on to it: go test ends a test binary that takes too long with one.
func run(folder string, args []string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	top, err := os.ReadFile(filepath.Join(folder, "top"))
	if err != nil {
		return err
	}
	s := spent{Package: "." + strings.TrimPrefix(here, strings.TrimSpace(string(top)))}
	file := filepath.Join(folder, strings.ReplaceAll(strings.Trim(s.Package, "./"), "/", "-")+"_")
	cmd := exec.Command(args[0], append(args[1:], "-test.cpuprofile="+file+".pprof")...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	s.Wall, s.User, s.Kernel = time.Since(began), cmd.ProcessState.UserTime(), cmd.ProcessState.SystemTime()
	text, jsonErr := json.Marshal(s)
	return errors.Join(err, jsonErr, os.WriteFile(file+".json", text, 0o600))
}
