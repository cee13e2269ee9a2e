package inspect

import (
	"fmt"
	"testing"
)

// Between the statement that finds the names and the one that describes them a holder may have got
// what it waited for, and its thread may wait in another session.
func TestAChainHasNoNameThatNoHolderWaitsForAnyMore(t *testing.T) {
	participant := func(session string) Participant { return Participant{Session: session, Host: "host", Thread: "1"} }
	infos := []Info{
		{Name: "another session's", Waiters: []Participant{participant("s2")}},
		{Name: "asked for", Holders: []Participant{participant("s1")}},
		{Name: "not waited for any more"},
		{Name: "waited for", Holders: []Participant{participant("s3")}, Waiters: []Participant{participant("s1")}},
	}
	var names []string
	for _, info := range chain(infos, "asked for") {
		names = append(names, info.Name)
	}
	if got := fmt.Sprintf("%q", names); got != `["asked for" "waited for"]` {
		t.Error(got)
	}
	if gone := chain(nil, "asked for"); len(gone) != 1 || gone[0].Name != "asked for" {
		t.Errorf("%+v", gone)
	}
}
