package dblockweb

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dblock-go/dblock/inspect"
)

var functions = template.FuncMap{
	"age": age, "left": left, "clock": clock, "span": span, "every": every, "milli": time.Time.UnixMilli,
	"text": printable, "claim": claim, "process": process,
	"pairs": pairs, "dict": dict, "add": func(a, b int) int { return a + b }, "result": result, "entries": entries,
}

// printable is a text as a page shows it: quoted where it holds what has no shape of its own, or
// changes that of its neighbours, such as line breaks, marks of direction, or bytes that are no
// UTF-8.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}

// age is a time that has passed. live.js has the same.
func age(since time.Time) string { return span(time.Since(since)) }

// left is what is left of a participant's time.
func left(until time.Time) string {
	if d := time.Until(until); d > 0 {
		return span(d)
	}
	return "over"
}

// span is a duration in two units at most. live.js has the same.
func span(d time.Duration) string {
	s := max(int64(d/time.Second), 0)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s%86400/3600)
}

// every is the length of a slot.
func every(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// clock is a moment. The pages say that it is UTC.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// process identifies a participant.
func process(p inspect.Participant) string {
	who := fmt.Sprintf("%s:%d", p.Host, p.PID)
	if p.Thread != "" {
		who += " " + p.Thread
	}
	return printable(who)
}

// claim is how a participant has a name, or wants it.
func claim(p inspect.Participant, of int) string {
	switch {
	case p.Permits > 0:
		return fmt.Sprintf("%d of %d", p.Permits, of)
	case p.Shared:
		return "shared"
	}
	return "exclusive"
}

// pairs are in the order of their keys.
func pairs(m map[string]string) (list [][2]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, [2]string{printable(k), printable(m[k])})
	}
	return list
}

// dict hands several values to a template.
func dict(keysAndValues ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		m[keysAndValues[i].(string)] = keysAndValues[i+1]
	}
	return m
}
