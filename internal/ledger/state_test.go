package ledger

import (
	"io"
	"testing"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/testing/diagram"
	"github.com/dblock-go/dblock/internal/testing/testlog"
)

// The diagrams in the package comment have every transition, and no other.
func TestEveryTransitionIsInTheDiagrams(t *testing.T) {
	diagram.Compare(t, append(diagram.Of(ofGrants), diagram.Of(ofClaims)...))
}

// watched is a ledger that reports a state that cannot be, with an attempt at a name.
func watched() (l *Ledger, c *Claim, impossible *bool) {
	impossible = new(bool)
	l = New(Config{Log: testlog.New(io.Discard, func(...any) { *impossible = true })})
	return l, l.Request(nil, &protocol.Request{Name: "n", Attempt: "a"}, Owner{}), impossible
}

func TestMoveKeepsTheTable(t *testing.T) {
	for from := range GrantState(len(grantStates)) {
		for e := range grantEvent(len(grantEvents)) {
			l, c, impossible := watched()
			g := c.Grant
			if g.state = from; from == Gone {
				delete(l.attempts, "a")
			}
			to, possible := ofGrants[from][e]
			if l.move(g, e); *impossible == possible {
				t.Errorf("%v at %v: logged as impossible: %v", from, e, *impossible)
			}
			if !possible {
				to = from
			}
			if g.state != to || l.Knows("a") != (to != Gone) {
				t.Errorf("%v at %v: %v, registered %v", from, e, g.state, l.Knows("a"))
			}
		}
	}
}

// Broken by a claim that changes without its grant.
func TestAClaimTakesItsGrantAlong(t *testing.T) {
	for from := range ClaimState(len(claimStates)) {
		for e := range claimEvent(len(claimEvents)) {
			l, c, impossible := watched()
			g := c.Grant
			g.present, g.waiting = c, nil
			if c.state, g.state = from, Granted; from == Pledged {
				g.state = Uncertain
			}
			was := g.state
			to, possible := ofClaims[from][e]
			if l.happen(c, e); *impossible == possible {
				t.Errorf("%v at %v: logged as impossible: %v", from, e, *impossible)
			}
			if !possible {
				to = from
			}
			want, moves := map[claimEvent]GrantState{
				promise: Uncertain, expire: Uncertain, rollback: Granted, unlock: Leaving, commit: Gone, lose: Gone,
			}[e]
			if !moves || !possible {
				want = was
			}
			if c.state != to || g.state != want {
				t.Errorf("%v at %v: %v, and its grant %v", from, e, c.state, g.state)
			}
		}
	}
}
