// Command times measures the processor time of a test run, and prints where it went: scripts/test
// -times. A test binary runs below it (go test -exec "times run FOLDER"). In FOLDER it leaves what
// the binary and the processes started by it have spent, and the binary's profile. Afterwards
// "times print FOLDER" prints the tables.
//
//	times run FOLDER PROGRAM ARGUMENT...
//	times print FOLDER
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	err := errors.New("usage: times run FOLDER PROGRAM ARGUMENT... | times print FOLDER")
	switch args := os.Args[1:]; {
	case len(args) > 2 && args[0] == "run":
		err = run(args[1], args[2:])
	case len(args) == 2 && args[0] == "print":
		err = show(os.Stdout, args[1])
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
