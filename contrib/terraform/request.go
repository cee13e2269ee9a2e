package tfstate

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// lockSuffix ends the address of a state's lock as GitLab has it, for the methods of lockMethods.
// With other methods, such an address is that of a state whose path ends so.
const lockSuffix = "/lock"

// lockMethods are GitLab's methods for the address of a lock, and what they mean.
var lockMethods = map[string]string{http.MethodPost: "LOCK", http.MethodDelete: "UNLOCK"}

// address is what the URL of a request names.
type address struct {
	state string // its path
	id    string // of the lock that the request states; "": none
}

// addressOf refuses what would be another state than the caller means.
func addressOf(u *url.URL) (a address, err error) {
	a.state = strings.Trim(u.Path, "/")
	query, err := url.ParseQuery(u.RawQuery)
	for key, values := range query {
		if key != "ID" || len(values) > 1 {
			return a, bad("the address has %q in its query: want one ID and nothing else; "+
				"a workspace needs a path of its own", key)
		}
	}
	switch a.id = query.Get("ID"); {
	case err != nil:
		return a, bad("the query of the address: %v", err)
	case !utf8.ValidString(a.state):
		return a, bad("the path %q is not valid UTF-8", a.state)
	case a.state == "":
		return a, refusal{http.StatusNotFound, "the path names no state"}
	}
	return a, nil
}

// meaningOf returns what a request does, as a method at the state's own address, and the path of
// the state. A state in the body is never a LockInfo: POST writes it, whatever its path ends with.
func meaningOf(method, path string, body []byte) (meaning, state string) {
	state, at := strings.CutSuffix(path, lockSuffix)
	if meaning = lockMethods[method]; !at || meaning == "" || checkState(body) == nil {
		return method, path
	}
	return meaning, strings.TrimRight(state, "/")
}

// checkState refuses what is no state, such as the LockInfo that lock_method = POST sends. An
// encrypted state of OpenTofu has an "encryption_version" in place of the version.
func checkState(body []byte) error {
	var fields map[string]json.RawMessage // a struct would take "Version" of a LockInfo, too
	_ = json.Unmarshal(body, &fields)
	var version, serial uint64
	plain := json.Unmarshal(fields["version"], &version) == nil && json.Unmarshal(fields["serial"], &serial) == nil
	var encryption string
	_ = json.Unmarshal(fields["encryption_version"], &encryption)
	if plain && version > 0 || encryption != "" {
		return nil
	}
	return bad("the body is no state, which has a version and a serial: to lock by POST and to unlock by DELETE, "+
		"lock_address and unlock_address are those of the state with %s behind it", lockSuffix)
}

// lockInfoOf returns the LockInfo of a body; nil: the body is empty.
func lockInfoOf(body []byte) (info map[string]string, err error) {
	if len(body) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, bad("the body is no LockInfo: %v", err)
	}
	return info, nil
}
