package program

import (
	"sync"
	"syscall"
	"time"
)

// Supervised is a Program that is started again where it ends by itself, as systemd does with
// Restart=always. What Kill, KillAlone and Stop have ended stays down until the next Start.
type Supervised struct {
	*Program
	pause time.Duration // before it is started again

	mu       sync.Mutex     // protects the Program and what follows
	wanted   bool           // it shall run
	restarts int            // how often it was started again
	watching sync.WaitGroup // one for each process that has not been seen to end
}

// Supervise makes a Supervised of a program that does not run.
func Supervise(p *Program, pause time.Duration) *Supervised {
	return &Supervised{Program: p, pause: pause}
}

// Start starts it, once more where it was ended, with further arguments of this start. Where it was
// started again meanwhile it does nothing.
func (s *Supervised) Start(further ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = true
	if s.Program.PID() != 0 {
		return nil
	}
	return s.start(further...)
}

// start MUST be called with mu locked.
func (s *Supervised) start(further ...string) error {
	if err := s.Program.Start(further...); err != nil {
		return err
	}
	ended := s.Program.Ended()
	s.watching.Go(func() {
		<-ended
		time.Sleep(s.pause)
		s.again(ended)
	})
	return nil
}

// again starts it where the process that has ended is the latest one, and nobody has ended it.
func (s *Supervised) again(ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted && s.Program.Ended() == ended {
		s.restarts++
		_ = s.start() // a program that was there a moment ago
	}
}

// Restarts returns how often the program has ended by itself and was started again.
func (s *Supervised) Restarts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// Ended is closed when the present process has ended.
func (s *Supervised) Ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Program.Ended()
}

// PID is as of Program.
func (s *Supervised) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Program.PID()
}

// Kill kills the program.
func (s *Supervised) Kill() error { return s.down(s.Program.Kill) }

// KillAlone kills the first process, and leaves those that it has started.
func (s *Supervised) KillAlone() error {
	return s.down(func() error {
		pid := s.Program.PID()
		if pid == 0 {
			return nil
		}
		if err := Signal(syscall.SIGKILL, pid); err != nil {
			return err
		}
		<-s.Program.Ended()
		return nil
	})
}

// Stop asks the program to end, and kills it where it does not within some time.
func (s *Supervised) Stop(within time.Duration) error {
	return s.down(func() error { return s.Program.Stop(within) })
}

// down ends the program for good.
func (s *Supervised) down(end func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = false
	return end()
}

// Pause stops the program; Resume lets it go on.
func (s *Supervised) Pause() error { return Pause(s.PID()) }

// Resume lets a paused program go on. One that has ended is started again by itself.
func (s *Supervised) Resume() error {
	if pid := s.PID(); pid != 0 {
		return Resume(pid)
	}
	return nil
}
