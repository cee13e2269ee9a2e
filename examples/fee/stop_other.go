//go:build !unix

package main

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("-pause needs SIGSTOP, which this system does not have")

func suspend(*os.Process) error { return errNoSignals }

func resume(*os.Process) error { return errNoSignals }
