package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Info shows a name at one moment.
type Info struct {
	Name     string
	Token    int64         // the highest token that was granted
	Capacity int           // the units of a semaphore, the smallest number that a holder states; 0: not one, or idle
	Holders  []Participant // the holder of the whole name, or those that share it, in the order of tokens
	Waiters  []Participant // in the order in which they are served; List shows the first 10
	Queued   int           // the number of all waiters
	Rests    time.Duration // how long the name still cools down (MinHold)
}

// Participant is a holder of a name, or a waiter.
type Participant struct {
	Host, Thread string // the owner
	Session      string // of its client: Session.ID
	App          string // of its client
	PID          int
	Token        int64     // 0: a waiter
	Shared       bool      // it has or wants the name together with others
	Permits      int       // the units of a semaphore that it has or wants; 0: not a semaphore
	Since        time.Time // when it was granted, or joined the queue, by the database's clock
	Until        time.Time // when it expires unless its client sends another heartbeat, by this machine's clock
	Alive        bool      // it has not expired; the next waiter or the reaper removes an expired one
	Metadata     map[string]string
	Asked        string // the reason of the last Client.Ask
	Buried       string // why its session was ended before its lease; "": it was not (Session.Buried)
	Candidate    bool   // it stands for election (package election): a waiter waits for as long as another leads
}

// firstWaiters limits the waiters of a name that List shows.
const firstWaiters = 10

// Lock returns the holders of a name and its waiters. A name that was never used is a name without
// holders. If goroutines of one client pass a lock on in memory, Lock shows the first of them for
// up to 20 ms, and does not count those that were granted the lock together with it as waiters.
func (i *Inspector) Lock(ctx context.Context, name string) (Info, error) {
	if err := checkName("inspect", name); err != nil {
		return Info{}, err
	}
	infos, err := i.describe(ctx, "inspect", []string{name}, driver.All)
	if err != nil || len(infos) == 0 {
		return Info{Name: name}, err
	}
	return infos[0], nil
}

func checkName(op, name string) error {
	if err := contract.CheckText(name); err != nil {
		return &dblock.LockError{Op: op, Name: name, Err: fmt.Errorf("%w: %w", dblock.ErrInvalidName, err)}
	}
	return nil
}

func (i *Inspector) describe(
	ctx context.Context, op string, names []string, waiters int,
) (infos []Info, err error) {
	var states []driver.State
	err = i.read(ctx, op, names[0], func(ctx context.Context, engine driver.Backend) (err error) {
		states, err = engine.Read(ctx, "", names, waiters)
		return err
	})
	for _, s := range states {
		info := Info{Name: s.Name, Token: s.Token, Queued: s.Waiters, Rests: max(s.Rest, 0)}
		if s.Capacity != protocol.Readers {
			info.Capacity = s.Capacity
		}
		for _, p := range s.Holders {
			info.Holders = append(info.Holders, participantOf(p, info.Capacity, s.Until(p.Holder)))
		}
		for _, p := range s.Queue {
			info.Waiters = append(info.Waiters, participantOf(p, info.Capacity, s.Until(p.Holder)))
		}
		infos = append(infos, info)
	}
	return infos, err
}

func participantOf(p driver.Participant, capacity int, until time.Time) Participant {
	participant := Participant{
		Host: p.Host, Thread: p.Thread, Session: p.Session, App: p.App, PID: p.PID, Token: p.Grant.Token,
		Shared: p.Units > 0, Since: p.Since, Until: until, Alive: p.Left > 0,
		Metadata: metadataOf(p.Metadata), Asked: protocol.Reason(p.Asked), Buried: p.Buried,
		Candidate: protocol.Candidate(p.Attempt),
	}
	if capacity > 0 {
		participant.Permits = p.Units
	}
	return participant
}
