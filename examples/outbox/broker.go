package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// broker receives the messages of all relays. It kills the relay that publishes message number
// fatal, which is in the middle of the second batch, instead of confirming the message.
type broker struct {
	fail context.CancelCauseFunc // ends the program

	mu       sync.Mutex // protects received
	received []message
}

// start starts a relay that publishes to the broker.
func (b *broker) start(a assignment) (*process, error) {
	p, err := startProcess(a)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.read)
		for messages := json.NewDecoder(p.out); ; {
			var m message
			if messages.Decode(&m) != nil { // the relay has ended
				break
			}
			b.receive(p, m)
		}
		if !p.killed {
			b.fail(fmt.Errorf("%s has ended", p.name))
		}
	}()
	return p, nil
}

func (b *broker) receive(p *process, m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.received = append(b.received, m)
	fmt.Printf("  %s publishes message %d, %s of customer %d, token %d\n", p.name, m.ID, m.Body, m.Customer, m.Token)
	if len(b.received) != fatal {
		p.confirm()
		return
	}
	fmt.Printf("%s is killed in the middle of its second batch.\n", p.name)
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil {
		b.fail(err)
	}
}

// report checks that no message is missing, that each customer's messages came in their order, that
// tokens never fell, and that a message was sent again only with the rest of its batch.
func (b *broker) report() (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wrong := func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) }
	orders := [customers]int{} // of each customer, so far
	latest := map[int64]int{}  // by message: its place in received
	again := map[int64]bool{}
	for i, m := range b.received {
		if i > 0 && m.Token < b.received[i-1].Token {
			wrong("message %d: token %d is late", m.ID, m.Token)
		}
		before, seen := latest[m.ID]
		latest[m.ID] = i
		if seen {
			again[m.ID] = true
			if i-before > batchSize {
				wrong("message %d was sent again after its batch", m.ID)
			}
			continue
		}
		orders[m.Customer]++
		if want := body(orders[m.Customer]); m.Body != want {
			wrong("customer %d: %q instead of %q", m.Customer, m.Body, want)
		}
	}
	for _, m := range b.received[batchSize:fatal] {
		if !again[m.ID] {
			wrong("message %d was in the killed relay's batch and was not sent again", m.ID)
		}
	}
	if lost := customers*ordersEach - len(latest); lost != 0 {
		wrong("%d messages are lost", lost)
	}
	if err == nil {
		fmt.Printf("All %d messages arrived, in order; %d of them arrived twice.\n", len(latest), len(again))
	}
	return err
}
