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

// printable returns a text as a page shows it. It quotes a text with characters that have no shape
// of their own, or change that of their neighbours, such as line breaks, marks of direction, or
// bytes that are not UTF-8.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}

// age formats the time since a moment. live.js does the same.
func age(since time.Time) string { return span(time.Since(since)) }

// left formats the time that a participant has left.
func left(until time.Time) string {
	if d := time.Until(until); d > 0 {
		return span(d)
	}
	return "over"
}

// span formats a duration with two units at most. live.js does the same.
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

// every formats the length of a slot.
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

// clock formats a moment. The pages say that it is in UTC.
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

// claim describes how a participant holds a name, or wants it.
func claim(p inspect.Participant, of int) string {
	switch {
	case p.Permits > 0:
		return fmt.Sprintf("%d of %d", p.Permits, of)
	case p.Shared:
		return "shared"
	}
	return "exclusive"
}

// pairs lists a map in the order of its keys.
func pairs(m map[string]string) (list [][2]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, [2]string{printable(k), printable(m[k])})
	}
	return list
}

// dict passes several values to a template.
func dict(keysAndValues ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		m[keysAndValues[i].(string)] = keysAndValues[i+1]
	}
	return m
}
