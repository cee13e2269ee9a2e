package dblockweb

import (
	"fmt"
	"html/template"
	"maps"
	"regexp"
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
	"text": printable, "words": words, "claim": claim, "process": process,
	"filled": filled, "queue": queueOf, "awaited": awaited,
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

// word is a part of a text that a line may break after, or that a line does not break within.
type word struct {
	Text  string
	Whole bool // no line breaks within: a number, with the character that ties the number to the text before it
	Break bool // a line may break after this word
}

// number matches numbers and dates, such as -7, :4102 and 2026-11-23, up to a length that fits into
// a column.
var number = regexp.MustCompile(`[-:._#]?\d{1,20}([-.]\d{1,6}){0,4}`)

// words divides a printable text for lines that break behind slashes, and not in numbers.
func words(s string) (all []word) {
	for part := range strings.SplitAfterSeq(printable(s), "/") {
		end, whole := 0, number.FindAllStringIndex(part, -1)
		for _, at := range whole {
			if at[0] > end {
				all = append(all, word{Text: part[end:at[0]]})
			}
			all = append(all, word{Text: part[at[0]:at[1]], Whole: true})
			end = at[1]
		}
		if end < len(part) {
			all = append(all, word{Text: part[end:], Break: strings.HasSuffix(part, "/")})
		}
	}
	return all
}

// age formats the time since a moment. live.js does the same.
func age(since time.Time) string { return span(time.Since(since)) }

// left formats the time that a participant has left.
func left(until time.Time) string {
	if d := time.Until(until); d > 0 {
		return span(d)
	}
	return "expired"
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
	case p.Candidate && p.Token == 0:
		return "the lead"
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
