package main

import (
	"time"

	"github.com/dblock-go/dblock/examples/internal/database"
)

// The program and its servers exchange JSON over the servers' standard input and output. A server
// gets its job, opens the database, reports that it is ready, and begins when it gets another line.
// A server ends when its input ends: so it notices that the program is gone.

// job is the task of a server.
type job struct {
	Source   database.Source
	Locked   bool
	Workers  int
	Rounds   int
	TTL      time.Duration
	HalfTime halfTime
	// Undetected makes the end of a server look as it does from another host.
	Undetected bool
}

// halfTime tells a server how to continue after half of its rounds.
type halfTime int

const (
	goOn       halfTime = iota
	stayInside          // in the critical section: there it is stopped or killed
	// waitForSignal waits until that server is inside, so that another server still wants the lock.
	waitForSignal
)

// report is a message of a server to the program.
type report struct {
	Kind  kind
	Token int64         `json:",omitzero"` // of the lock
	Wait  time.Duration `json:",omitzero"` // for the lock
	// At is the time of the event, by the clock of the machine that all run on.
	At      time.Time `json:",omitzero"`
	Refused bool      `json:",omitzero"` // isWoken: the stale write was refused
	Text    string    `json:",omitzero"` // isWoken, hasFailed: the reason
}

type kind string

const (
	isReady  kind = "ready"
	feeTaken kind = "fee"    // and written
	isInside kind = "inside" // has the lock and has read the balance, and stays there
	// isWoken follows isInside: the context ended with ErrLost, and a write was tried nevertheless.
	isWoken   kind = "woken"
	hasFailed kind = "failed"
	hasEnded  kind = "ended" // from the program's end of the pipe: the process is gone
)
