package protocol

import (
	"fmt"
	"time"
)

// Extend moves the end of a fixed lease to d from now, unless it is later already, and returns what
// is left of it then. ErrNotHeld, also where the lease is over or there is none. It is safe to
// repeat.
func Extend(n *Name, h Held, d time.Duration) (left time.Duration, err error) {
	found, held, err := n.find(h.Session, h.Token, "")
	if err != nil || !held || h.Shared != (found.share != nil) || found.ends == 0 || found.ends <= n.Now {
		return 0, notHeld(err)
	}
	ends := max(found.ends, n.Now+micros(d))
	if found.share == nil {
		n.Ends = ends
	} else if ends > found.ends {
		found.share.Ends = ends
		n.PutShares = append(n.PutShares, *found.share)
	}
	return duration(ends - n.Now), nil
}

// notHeld is ErrNotHeld, unless there is a graver error.
func notHeld(err error) error {
	if err != nil {
		return err
	}
	return ErrNotHeld
}

// Downgrade turns the whole name into one unit of Readers, with the same attempt and token, and
// hands over. It keeps the time since when the name is held: there was no moment without a holder.
// It succeeds if the lock is a share already. ErrNotHeld, also of a cohort: it is detached
// first. ErrCapacity where waiters want permits.
func Downgrade(n *Name, h Held) error {
	found, held, err := n.find(h.Session, h.Token, "")
	switch {
	case err != nil || !held:
		return notHeld(err)
	case found.share != nil:
		return nil
	case n.First < n.Last:
		return ErrNotHeld
	case n.Waiters > 0 && n.Capacity != 0 && n.Capacity != Readers:
		return fmt.Errorf("%w: those who wait for %q want permits: keep the whole name, or release it", ErrCapacity, n.Row.Name)
	}
	n.PutShares = append(n.PutShares, Share{
		Session: n.Session, Host: n.Host, Thread: n.Thread, Attempt: n.Attempt, Token: n.Last,
		Units: 1, Of: Readers, Since: n.Since, Ends: n.Ends, Metadata: n.Metadata, Asked: n.Asked,
	})
	since := n.Since
	n.free()
	n.Since, n.Units, n.Capacity, n.Mixed = since, 1, Readers, false
	_, err = n.handOver(h.Session)
	return err
}

// Upgrade turns the share of an attempt into the whole name, with a new token, before all waiters:
// they could not have had the name before this share is released. It returns false if there is
// another share. It succeeds if the attempt holds the whole name already. ErrNotHeld.
func Upgrade(n *Name, h Held, attempt string) (Grant, bool, error) {
	if !n.held() || n.Session != h.Session || n.Attempt != attempt {
		s, shared, err := n.source.Share(h.Session, h.Token, "")
		switch {
		case err != nil || !shared || s.Attempt != attempt:
			return Grant{}, false, notHeld(err)
		case n.Units != s.Units:
			return Grant{}, false, nil
		}
		if err := n.drop(s); err != nil {
			return Grant{}, false, err
		}
		token := n.nextToken()
		n.Token, n.Since = token, n.Now
		n.take(Request{Session: s.Session, Host: s.Host, Thread: s.Thread, Attempt: s.Attempt, Metadata: s.Metadata},
			Grant{First: token, Token: token}, s.Ends)
	}
	holder := Holder{Grant: Grant{First: n.First, Token: n.Last, Contended: n.Waiters > 0}}
	if n.Ends != 0 {
		holder = holder.WithFixedLease(duration(n.Ends - n.Now))
	}
	return holder.Grant, true, nil
}

// Raise makes a token the lock's own, unless the lock's is higher, and returns the lock's. It also
// finds the token to which it was raised before, by a call whose answer was lost. ErrNotHeld, also
// of a cohort: the tokens of its members would not be its own any more.
func Raise(n *Name, h Held, token int64) (int64, error) {
	if !n.holds(h.Session, h.Token) && !n.holds(h.Session, token) || n.First < n.Last {
		return 0, ErrNotHeld
	}
	n.Token = max(n.Token, token)
	n.Last = max(n.Last, token)
	n.First = n.Last
	return n.Last, nil
}

// Detachment says which member of a cohort is to be its only holder.
type Detachment struct {
	Token  int64  // of the member; 0, beside a release in a transaction: nothing is to be detached
	Host   string // with Thread: the member's owner
	Thread string
	Behind Request // the place of the members behind it; Members 0: there are none
}

// Detach leaves one member of a cohort as the only holder of the name, under the cohort's attempt.
// The members behind it become one place at the head of the queue, under an attempt of its own. The
// members before it have had the lock, and of those behind it some may have given up. It is
// safe to repeat. ErrNotHeld where the cohort does not have the name by h.
func Detach(n *Name, h Held, d Detachment) error {
	if n.holds(h.Session, d.Token) && n.First == d.Token {
		return nil
	}
	if !n.holds(h.Session, h.Token) || d.Token < n.First || d.Token > n.Last {
		return ErrNotHeld
	}
	n.First, n.Last, n.Host, n.Thread = d.Token, d.Token, d.Host, d.Thread
	if d.Behind.Members == 0 {
		return nil
	}
	n.Capacity, _ = n.Joined(0)
	n.Head--
	behind := d.Behind
	behind.Name = n.Row.Name
	n.join(behind, n.Head)
	return nil
}
