package dblock

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/contract"
)

const (
	// maxHashed is the length of a name that Name shortens. Package jobs takes no longer names.
	maxHashed = contract.MaxJob
	hashBytes = 24 // of the SHA-256, which are 32 letters
)

// escape escapes a part of a name. A "%" of a part is always followed by "25" in its name, and a
// "/" of a part is "%2F". So "%#" stands before a hash and nowhere else.
var escape = strings.NewReplacer("%", "%25", "/", "%2F")

const hashMark = "%#"

// Name joins parts to the name of a lock, with "/" between them: Name("tenant", id, "invoices").
// Different parts give different names. For that, a "/" within a part becomes "%2F", and a "%"
// becomes "%25": Name("a/b") is "a%2Fb", and Name("a", "b") is "a/b".
//
// A name of more than 255 bytes is cut to its beginning, "%#", and a hash of the whole (192 bits of
// SHA-256), together at most 250 bytes, so that package jobs takes it too. The beginning ends with
// a whole character.
//
// Name refuses nothing. Parts must be UTF-8 without NUL, as in any name. Without parts, and of one
// part that is empty, the name is empty. A call with such a name returns ErrInvalidName.
func Name(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = escape.Replace(part)
	}
	name := strings.Join(escaped, "/")
	if len(name) <= contract.MaxName {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	suffix := hashMark + base64.RawURLEncoding.EncodeToString(hash[:hashBytes])
	return beginning(name, maxHashed-len(suffix)) + suffix
}

// beginning returns the first bytes of a name, at most so many, without a part of a character or of
// an escape at the end.
func beginning(name string, most int) string {
	for most > 0 && !utf8.RuneStart(name[most]) {
		most--
	}
	if i := strings.LastIndexByte(name[:most], '%'); i >= 0 && i > most-len("%25") {
		most = i
	}
	return name[:most]
}
