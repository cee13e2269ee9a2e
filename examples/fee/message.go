package main

import (
	"time"

	"github.com/dblock-go/dblock/examples/internal/database"
)

// The program and its servers speak JSON over the servers' standard input and output. A server gets
// its job, opens the database, says that it is ready, and begins when it gets another line. When
// its input ends, so does the server: that is how it notices that the program is gone.

// job is what a server has to do.
type job struct {
	Source   database.Source
	Locked   bool
	Workers  int
	Rounds   int
	TTL      time.Duration
	HalfTime halfTime
}

// halfTime is what a server does when half of its rounds are done.
type halfTime int

const (
	goOn          halfTime = iota
	stayInside             // the critical section: there it is stopped or killed
	waitForSignal          // until that server is inside, so that somebody still wants the lock
)

// report is what a server tells the program.
type report struct {
	Kind    kind
	Token   int64         `json:",omitzero"` // of the lock
	Wait    time.Duration `json:",omitzero"` // for the lock
	At      time.Time     `json:",omitzero"` // when it happened, by the clock of the machine that all run on
	Refused bool          `json:",omitzero"` // isWoken: the stale write was refused
	Text    string        `json:",omitzero"` // isWoken, hasFailed: why
}

type kind string

const (
	isReady   kind = "ready"
	feeTaken  kind = "fee"    // and written
	isInside  kind = "inside" // has the lock and has read the balance, and stays there
	isWoken   kind = "woken"  // after isInside: the context ended with ErrLost, and a write was tried all the same
	hasFailed kind = "failed"
	hasEnded  kind = "ended" // from the program's end of the pipe: the process is gone
)
