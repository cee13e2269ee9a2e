package contract

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/protocol"
)

const (
	// MaxName limits the bytes of a lock's name, a host or a thread.
	MaxName = 255
	// JobPrefix begins the name of a job's lock. The job's own name follows.
	JobPrefix = "once/"
	// MaxJob limits the bytes of a job's name, so that its lock has a name.
	MaxJob = MaxName - len(JobPrefix)
	// MinLease is the shortest fixed lease.
	MinLease   = 100 * time.Millisecond
	maxMinHold = 366 * 24 * time.Hour
)

// Option configures one lock.
type Option struct{ set func(o *Options) }

// Set makes an Option.
func Set(set func(o *Options)) Option { return Option{set} }

// LocksOption configures several locks: an Option, or a For.
type LocksOption interface{ addTo(s *Several) }

// For are options for one name of several.
type For struct {
	Name    string
	Options []Option
}

// Several are the options of several names.
type Several struct {
	All  []Option
	Each map[string][]Option
}

func (o Option) addTo(s *Several) { s.All = append(s.All, o) }

func (f For) addTo(s *Several) { s.Each[f.Name] = append(s.Each[f.Name], f.Options...) }

// OfSeveral sorts options into those for all names and those for one name.
func OfSeveral(options []LocksOption) (Several, error) {
	s := Several{Each: map[string][]Option{}}
	for _, o := range options {
		if o == nil {
			return s, fmt.Errorf("%w: a nil LocksOption", ErrInvalidOption)
		}
		o.addTo(&s)
	}
	return s, nil
}

// Owner is an owner that the application has named.
type Owner struct{ Host, Thread string }

// Options are those of one lock.
type Options struct {
	Owner    *Owner // nil: from the context, or a new one
	Lease    time.Duration
	Leased   bool
	Metadata map[string]string
	Units    int // 0: the whole name
	Of       int
	Shares   int // how often Shared or Permits was given
	Permits  bool
	Progress time.Duration
	Watched  bool
	MinHold  time.Duration
	Rests    bool
	AtMost   time.Duration // limits the wait
	Bounded  bool

	Candidate bool // it stands for election
}

// Shared reports whether others may have the name as well.
func (o *Options) Shared() bool { return o.Units > 0 }

// Leasing reports whether the options need a lock in a table.
func (o *Options) Leasing() bool {
	return o.Owner != nil || o.Leased || o.Metadata != nil || o.Rests || o.Permits || o.Watched
}

// Of validates a name and the options of one lock.
func Of(name string, options []Option) (o Options, err error) {
	if err := CheckText(name); err != nil {
		return o, fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	for _, option := range options {
		if option.set == nil {
			return o, fmt.Errorf("%w: a zero LockOption", ErrInvalidOption)
		}
		option.set(&o)
	}
	if o.Leased && o.Lease < MinLease {
		return o, fmt.Errorf("%w: Lease %v: want at least %v", ErrInvalidOption, o.Lease, MinLease)
	}
	if o.Watched && o.Progress < MinLease {
		return o, fmt.Errorf("%w: Progress %v: want at least %v", ErrInvalidOption, o.Progress, MinLease)
	}
	switch {
	case o.Bounded && o.AtMost <= 0:
		return o, fmt.Errorf("%w: WaitAtMost %v: want more than 0", ErrInvalidOption, o.AtMost)
	case o.Shares > 1:
		return o, fmt.Errorf("%w: Shared and Permits exclude each other: give one of them, once", ErrInvalidOption)
	case o.Permits && (o.Units < 1 || o.Units > o.Of || o.Of >= protocol.Readers):
		return o, fmt.Errorf("%w: Permits(%d, %d): want 1 <= n <= of < 2^31 - 1", ErrInvalidOption, o.Units, o.Of)
	case o.Rests && (o.MinHold <= 0 || o.MinHold > maxMinHold):
		return o, fmt.Errorf("%w: MinHold %v: want more than 0, and at most %v",
			ErrInvalidOption, o.MinHold, maxMinHold)
	case o.Rests && o.Units > 0:
		return o, fmt.Errorf("%w: MinHold is for locks of a whole name: not with Shared", ErrInvalidOption)
	}
	if o.Owner != nil {
		for what, text := range map[string]string{"host": o.Owner.Host, "thread": o.Owner.Thread} {
			if err := CheckText(text); err != nil {
				return o, fmt.Errorf("%w: Owner's %s %w", ErrInvalidOption, what, err)
			}
		}
	}
	for key, value := range o.Metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return o, fmt.Errorf("%w: Metadata: %q: %q is not valid UTF-8", ErrInvalidOption, key, value)
		}
	}
	return o, nil
}

// NamesOfTx validates the names of LockTx, and returns them in the order in which they are locked.
func NamesOfTx(names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no names", ErrInvalidOption)
	}
	for _, name := range names {
		if err := CheckText(name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidName, err)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), nil
}

// CheckText refuses a text that some engine would not keep byte for byte.
func CheckText(s string) error { return check(s, MaxName, "") }

// CheckJob refuses a name of a job whose lock's name CheckText would refuse.
func CheckJob(s string) error {
	return check(s, MaxJob, `: the lock of the job has "`+JobPrefix+`" before the name`)
}

// check is CheckText with another limit, and the reason for it.
func check(s string, most int, why string) error {
	switch {
	case s == "":
		return fmt.Errorf("is empty: want 1 to %d bytes%s", most, why)
	case len(s) > most:
		return fmt.Errorf("has %d bytes: want 1 to %d bytes%s", len(s), most, why)
	case !utf8.ValidString(s):
		return fmt.Errorf("%q is not valid UTF-8", s)
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%q contains NUL", s)
	}
	return nil
}
