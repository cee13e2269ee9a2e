package client

import "strings"

// MaxReason is how many bytes a reason or another detail of an event may have.
const MaxReason = 1024

// Clean makes of any text one that every engine keeps.
func Clean(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > MaxReason {
		text = strings.ToValidUTF8(text[:MaxReason], "")
	}
	return text
}
