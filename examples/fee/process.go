package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// process is a server as the program sees it.
type process struct {
	number int // from 1
	cmd    *exec.Cmd
	input  io.WriteCloser
	log    tail
}

// event is a report with its server.
type event struct {
	from *process
	report
}

// startProcess starts this program again, as a server with a job. Its reports go to events;
// hasEnded is the last.
func startProcess(number int, j job, verbose bool, events chan<- event) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	work, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	p := &process{number: number, cmd: exec.Command(self, serveCommand)}
	p.cmd.SysProcAttr = diesWithParent
	p.cmd.Stderr = &p.log
	if verbose {
		p.cmd.Stderr = os.Stderr
	}
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server %d: %w", number, err)
	}
	go func() {
		for decoder := json.NewDecoder(output); ; {
			var r report
			if err := decoder.Decode(&r); err != nil {
				break
			}
			events <- event{p, r}
		}
		ended := report{Kind: hasEnded}
		if err := p.cmd.Wait(); err != nil {
			ended.Text = err.Error()
		}
		events <- event{p, ended}
	}()
	_, _ = p.input.Write(append(work, '\n'))
	return p, nil
}

// signal sends the server a line. Errors are ignored: a server that is gone is noticed by its last
// report.
func (p *process) signal() { _, _ = p.input.Write([]byte{'\n'}) }

// end asks the server to stop.
func (p *process) end() { _ = p.input.Close() }

func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill server %d: %w", p.number, err)
	}
	return nil
}

// tail keeps the end of a server's log, for the case that the server fails.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

const tailLength = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailLength; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}
