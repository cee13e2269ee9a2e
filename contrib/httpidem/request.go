package httpidem

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// maxKey is the longest key, in bytes.
const maxKey = 255

// keyOf returns the key of a request (section 2.1 of the draft: a String of RFC 8941, in quotes).
// It also takes a key without quotes, since many clients send one. "": there is no key.
func keyOf(header http.Header) (string, error) {
	bad := func(format string, args ...any) error {
		return problem{
			Title: "Idempotency-Key is not valid", Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...),
		}
	}
	values := header.Values("Idempotency-Key")
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", bad("%d keys: want one", len(values))
	}
	key := strings.Trim(values[0], " ")
	if text, quoted := strings.CutPrefix(key, `"`); quoted {
		var closed bool
		if key, closed = strings.CutSuffix(text, `"`); !closed {
			return "", bad("the quotes are not closed")
		}
	}
	for i := range len(key) {
		if c := key[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return "", bad("a key has printable characters of ASCII, without quotes and backslashes")
		}
	}
	if key == "" || len(key) > maxKey {
		return "", bad("the key has %d bytes: want 1 to %d", len(key), maxKey)
	}
	return key, nil
}

// fingerprintOf tells requests apart that have the same key (section 2.4).
func fingerprintOf(r *http.Request, body []byte) []byte {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s?%s\n", r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	hash.Write(body)
	return hash.Sum(nil)
}

// unread returns the refusal of a body that could not be read.
func unread(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return problem{
			Title: "The body is too large", Status: http.StatusRequestEntityTooLarge, Detail: err.Error(),
		}
	}
	return problem{Title: "The body could not be read", Status: http.StatusBadRequest, Detail: err.Error()}
}
