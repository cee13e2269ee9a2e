package protocol

import (
	"fmt"
	"time"
)

// Extend moves the end of a fixed lease to For from now, unless the lease ends later already.
// Result.Grant.Lease is the time that is then left of the lease. ErrNotHeld, also where the lease
// has expired or the lock has none. Extend is safe to repeat.
type Extend struct {
	Held
	For time.Duration
}

// Apply implements Op.
func (e Extend) Apply(n *Name) (Result, error) {
	found, held, err := n.find(e.Session, e.Token, "")
	if err != nil || !held || e.Shared != (found.share != nil) || found.ends == 0 || found.ends <= n.Now {
		return Result{}, notHeld(err)
	}
	ends := max(found.ends, n.Now+micros(e.For))
	if found.share == nil {
		n.Ends = ends
	} else if ends > found.ends {
		found.share.Ends = ends
		n.set(*found.share)
	}
	return Result{Outcome: Done, Grant: Grant{Lease: duration(ends - n.Now)}}, nil
}

// notHeld returns err, or ErrNotHeld if err is nil.
func notHeld(err error) error {
	if err != nil {
		return err
	}
	return ErrNotHeld
}

// Downgrade turns the whole name into one unit of Readers, with the same attempt and token, and
// hands over. It keeps Since: there was no moment without a holder. Downgrade succeeds if the lock
// is a share already. ErrNotHeld, also of a cohort: a cohort is detached first. ErrCapacity where
// waiters want permits.
type Downgrade struct{ Held }

// Apply implements Op.
func (d Downgrade) Apply(n *Name) (Result, error) {
	found, held, err := n.find(d.Session, d.Token, "")
	switch {
	case err != nil || !held:
		return Result{}, notHeld(err)
	case found.share != nil:
		return Result{Outcome: Done}, nil
	case n.First < n.Last:
		return Result{}, ErrNotHeld
	case n.Waiters > 0 && n.Capacity != 0 && n.Capacity != Readers:
		return Result{}, fmt.Errorf("%w: the waiters for %q want permits: keep the whole name, or release it",
			ErrCapacity, n.Row.Name)
	}
	n.PutShares = append(n.PutShares, Share{
		Session: n.Session, Host: n.Host, Thread: n.Thread, Attempt: n.Attempt, Token: n.Last,
		Units: 1, Of: Readers, Since: n.Since, Ends: n.Ends, Metadata: n.Metadata, Asked: n.Asked,
	})
	since := n.Since
	n.free()
	n.Since, n.Units, n.Capacity, n.Mixed = since, 1, Readers, false
	_, err = n.handOver(d.Session)
	return n.done(true, err)
}

// Upgrade turns the share of an Attempt into the whole name, with a new token, before all waiters:
// no waiter could have had the name before this share is released. Undone if there is another
// share. Upgrade succeeds if the attempt holds the whole name already. ErrNotHeld.
type Upgrade struct {
	Held
	Attempt string
}

// Apply implements Op.
func (u Upgrade) Apply(n *Name) (Result, error) {
	if !n.held() || n.Session != u.Session || n.Attempt != u.Attempt {
		s, shared, err := n.share(u.Session, u.Token)
		switch {
		case err != nil || !shared || s.Attempt != u.Attempt:
			return Result{}, notHeld(err)
		case n.Units != s.Units:
			return Result{}, nil
		}
		if err := n.drop(s); err != nil {
			return Result{}, err
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
	return Result{Outcome: Done, Grant: holder.Grant}, nil
}

// Raise lifts the token of an Attempt's lock to To, unless it is higher already. Result.Grant.Token
// is the token after that. Raise also finds the lock by the token To, which an earlier Raise whose
// answer was lost has given to it. Another lock of the session may have that token by its own
// grant, so that Raise compares the Attempt. ErrNotHeld, also of a cohort: a raised token would be
// outside the range of its members.
type Raise struct {
	Held
	Attempt string
	To      int64
}

// Apply implements Op.
func (r Raise) Apply(n *Name) (Result, error) {
	if !n.holds(r.Session, r.Token) && !n.holds(r.Session, r.To) || n.Attempt != r.Attempt || n.First < n.Last {
		return Result{}, ErrNotHeld
	}
	n.Token = max(n.Token, r.To)
	n.Last = max(n.Last, r.To)
	n.First = n.Last
	return Result{Outcome: Done, Grant: Grant{First: n.Last, Token: n.Last}}, nil
}

// Detachment names the member of a cohort that becomes its only holder.
type Detachment struct {
	Token  int64  // of the member; 0, beside a release in a transaction: no member is detached
	Host   string // with Thread: the member's owner
	Thread string
	Behind Request // the place of the members behind it; Members 0: there are none
}

// Detach leaves one Member of a cohort as the only holder of the name, under the cohort's attempt.
// The members behind it become one place at the head of the queue, under an attempt of its own. The
// members before it have released the lock already. Some of the members behind it may have given
// up. Detach is safe to repeat. ErrNotHeld where the cohort does not hold the name as Held.
type Detach struct {
	Held
	Member Detachment
}

// Apply implements Op.
func (d Detach) Apply(n *Name) (Result, error) {
	member := d.Member
	if n.holds(d.Session, member.Token) && n.First == member.Token {
		return Result{Outcome: Done}, nil
	}
	if !n.holds(d.Session, d.Token) || member.Token < n.First || member.Token > n.Last {
		return Result{}, ErrNotHeld
	}
	n.First, n.Last, n.Host, n.Thread = member.Token, member.Token, member.Host, member.Thread
	n.Asked = Reason(n.Asked)
	if member.Behind.Members > 0 {
		n.Capacity, _ = n.Joined(0)
		n.Head--
		behind := member.Behind
		behind.Name = n.Row.Name
		n.join(behind, n.Head)
	}
	return Result{Outcome: Done}, nil
}
