package client

import "strings"

// MaxReason is how many bytes a reason or another detail of an event may have.
const MaxReason = 1024

// maxOutcome is how many bytes of what became of a run are kept: of a panic also the stack.
const maxOutcome = 4096

// Clean makes of any text one that every engine keeps.
func Clean(text string) string { return cleaned(text, MaxReason) }

func cleaned(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
