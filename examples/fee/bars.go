package main

import (
	"fmt"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// bars show the progress of each server, and lines above them the events. If the output is not a
// terminal, there are only the lines.
type bars struct {
	writer   progress.Writer // nil: no terminal
	trackers []*progress.Tracker
	drawn    chan struct{} // closed when the last picture is drawn
}

func newBars(p phase) *bars {
	fmt.Printf("\n%s\n", p.title)
	if !term.IsTerminal(int(os.Stdout.Fd())) {
		return &bars{}
	}
	w := progress.NewWriter()
	w.SetOutputWriter(os.Stdout)
	w.SetTrackerPosition(progress.PositionRight)
	w.SetTrackerLength(30)
	w.SetUpdateFrequency(50 * time.Millisecond)
	w.SetSortBy(progress.SortByIndex)
	style := progress.StyleBlocks
	style.Options.KeepTrackersTogether = true
	style.Options.Separator = " "
	style.Options.PercentFormat = "%3.0f%%"
	style.Options.DoneString = "done"
	style.Options.ErrorString = "killed"
	style.Options.TimeInProgressPrecision = 100 * time.Millisecond
	style.Options.TimeDonePrecision = 100 * time.Millisecond
	w.SetStyle(style)
	b := &bars{writer: w, drawn: make(chan struct{})}
	for i := range p.servers {
		tracker := &progress.Tracker{Message: fmt.Sprintf("  server %d", i+1), Total: int64(p.rounds), Index: uint64(i)}
		b.trackers = append(b.trackers, tracker)
		w.AppendTracker(tracker)
	}
	go func() {
		w.Render()
		close(b.drawn)
	}()
	return b
}

// step advances a server's bar by one round.
func (b *bars) step(server int) {
	if b.writer != nil {
		b.trackers[server-1].Increment(1)
	}
}

// fail ends the bar of a server that is gone.
func (b *bars) fail(server int) {
	if b.writer != nil {
		b.trackers[server-1].MarkAsErrored()
	}
}

// say prints a line above the bars.
func (b *bars) say(format string, args ...any) {
	line := "  " + fmt.Sprintf(format, args...)
	if b.writer != nil {
		b.writer.Log("%s", line)
	} else {
		fmt.Println(line)
	}
}

// stop draws the last picture.
func (b *bars) stop() {
	if b.writer != nil {
		b.writer.Stop()
		<-b.drawn
	}
}
