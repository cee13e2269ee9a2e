package dblockweb

import (
	"fmt"

	"github.com/dblock-go/dblock/inspect"
)

// Sizes of the picture of a queue, which fits on a narrow screen.
const (
	pictureWidth = 340
	boxLeft      = 34 // the line of the queue is to the left of the boxes
	boxHeight    = 42
	boxStep      = 52
	boxLetters   = 42 // of the small text
	drawnHolders = 5
	drawnWaiters = 8
)

// picture is a queue: the holders, and below them the waiters in their order.
type picture struct {
	Width, Height int
	Boxes         []box
	Permits       *permits // nil: the name is no semaphore
	Text          string   // the same in words
}

type box struct {
	Class                  string
	X, Y, W, H             int
	Place                  int // in the queue; 0: it holds the name
	Title, First, Second   string
	TextX, FirstY, SecondY int
	DotX, DotY, PlaceY     int
	Line                   string // to the previous box; of the first to the holder
}

// permits describes the units of a semaphore that are in use.
type permits struct {
	Y, X, W, Used int // Used is a width
	Text          string
	TextY         int
}

func pictureOf(i inspect.Info) picture {
	p := picture{Width: pictureWidth}
	y, before := 2, 2+boxHeight/2
	add := func(class string, place int, first, second string) {
		dot := y + boxHeight/2
		line := fmt.Sprintf("M%d %dV%d", boxLeft/2, dot, before)
		if place == 1 {
			line += fmt.Sprintf("H%d", boxLeft)
		}
		before = dot
		p.Boxes = append(p.Boxes, box{
			Class: class, Place: place, X: boxLeft, Y: y, W: pictureWidth - boxLeft - 2, H: boxHeight,
			Title: first + ", " + second,
			First: cut(first, boxLetters-4), Second: cut(second, boxLetters), TextX: boxLeft + 12, FirstY: y + 18,
			SecondY: y + 34,
			DotX:    boxLeft / 2, DotY: dot, PlaceY: dot + 4, Line: line,
		})
		y += boxStep
	}
	for n, h := range i.Holders {
		if n == drawnHolders {
			add("more", 0, fmt.Sprintf("and %d more holders", len(i.Holders)-n), "")
			break
		}
		class := "holder"
		if !h.Alive {
			class += " over"
		}
		add(class, 0, process(h), fmt.Sprintf("%s, token %d", claim(h, i.Capacity), h.Token))
	}
	if len(i.Holders) == 0 {
		add("free", 0, "no holder", rests(i))
	}
	if i.Capacity > 0 {
		used := 0
		for _, h := range i.Holders {
			used += h.Permits
		}
		w := pictureWidth - boxLeft - 2
		p.Permits = &permits{
			X: boxLeft, Y: y - 4, W: w, Used: min(w*used/i.Capacity, w), TextY: y + 16,
			Text: fmt.Sprintf("%d of %d permits given out", used, i.Capacity),
		}
		y += 30
	}
	for n, w := range i.Waiters {
		if n == drawnWaiters {
			break
		}
		class := "waiter"
		if !w.Alive {
			class += " over"
		}
		add(class, n+1, process(w), "waits for "+wants(w, i.Capacity))
	}
	if rest := i.Queued - min(len(i.Waiters), drawnWaiters); rest > 0 {
		add("more", 0, fmt.Sprintf("and %d more wait", rest), "")
	}
	p.Height = y - (boxStep - boxHeight) + 2
	p.Text = fmt.Sprintf("%d hold it, %d wait", len(i.Holders), i.Queued)
	return p
}

func rests(i inspect.Info) string {
	if i.Rests > 0 {
		return "it rests (MinHold)"
	}
	return "it is free"
}

func wants(p inspect.Participant, of int) string {
	switch {
	case p.Candidate:
		return "the lead"
	case p.Permits > 0:
		return fmt.Sprintf("%d of %d permits", p.Permits, of)
	case p.Shared:
		return "a share"
	}
	return "the whole name"
}

// cut shortens a text so that it fits.
func cut(s string, letters int) string {
	if runes := []rune(s); len(runes) > letters {
		return string(runes[:letters-1]) + "…"
	}
	return s
}
