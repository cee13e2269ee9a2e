//go:build !unix

package main

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("-pause needs a system with SIGSTOP")

func suspend(*os.Process) error { return errNoSignals }
func resume(*os.Process) error  { return errNoSignals }
