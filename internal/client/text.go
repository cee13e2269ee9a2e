package client

import "strings"

// MaxReason limits the bytes of a reason, or another detail of an event.
const MaxReason = 1024

// Clean returns a text as every engine keeps it: UTF-8 without NUL, of at most so many bytes.
func Clean(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
