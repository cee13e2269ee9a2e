package contract

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock/internal/driver"
)

const (
	// MaxName is how many bytes a lock's name, a host or a thread may have.
	MaxName = 255
	// MinLease is the shortest fixed lease.
	MinLease   = 100 * time.Millisecond
	maxMinHold = 366 * 24 * time.Hour
)

// Option configures one lock.
type Option func(*Options)

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
	Shares   int // how often Shared or Permits was said
	Permits  bool
	MinHold  time.Duration
	Rests    bool
	Also     []string            // LockTx
	Each     map[string][]Option // LockAll
}

// Shared reports whether others may have the name as well.
func (o *Options) Shared() bool { return o.Units > 0 }

// Leasing reports whether an option is there that only a lock in a table can have.
func (o *Options) Leasing() bool {
	return o.Owner != nil || o.Leased || o.Metadata != nil || o.Rests || o.Permits
}

// Of validates a name and the options of one lock.
func Of(name string, options []Option) (o Options, err error) {
	if err := CheckText(name); err != nil {
		return o, fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	for _, option := range options {
		if option == nil {
			return o, fmt.Errorf("%w: a nil LockOption", ErrInvalidOption)
		}
		option(&o)
	}
	if o.Leased && o.Lease < MinLease {
		return o, fmt.Errorf("%w: Lease %v: want at least %v", ErrInvalidOption, o.Lease, MinLease)
	}
	switch {
	case o.Shares > 1:
		return o, fmt.Errorf("%w: Shared or Permits, and once", ErrInvalidOption)
	case o.Permits && (o.Units < 1 || o.Units > o.Of || o.Of >= driver.Readers):
		return o, fmt.Errorf("%w: Permits(%d, %d): want 1 <= n <= of < 2^31 - 1", ErrInvalidOption, o.Units, o.Of)
	case o.Rests && (o.MinHold <= 0 || o.MinHold > maxMinHold):
		return o, fmt.Errorf("%w: MinHold %v: want more than 0, and at most %v", ErrInvalidOption, o.MinHold, maxMinHold)
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

// OfOne is Of for a single lock outside a transaction.
func OfOne(name string, options []Option) (Options, error) {
	o, err := Of(name, options)
	switch {
	case err != nil:
	case o.Each != nil:
		err = fmt.Errorf("%w: For is for LockAll", ErrInvalidOption)
	case len(o.Also) > 0:
		err = fmt.Errorf("%w: Also is for LockTx", ErrInvalidOption)
	}
	return o, err
}

// OfTx validates what LockTx was given, and returns the names in the order in which they are
// locked.
func OfTx(name string, options []Option) (names []string, shared bool, err error) {
	o, err := Of(name, options)
	if err != nil {
		return nil, false, err
	}
	if o.Leasing() || o.Each != nil {
		return nil, false, fmt.Errorf("%w: Owner, Lease, MinHold, Permits, Metadata and For are for leases", ErrInvalidOption)
	}
	names = append([]string{name}, o.Also...)
	for _, also := range o.Also {
		if err := CheckText(also); err != nil {
			return nil, false, fmt.Errorf("%w: Also: %w", ErrInvalidName, err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), o.Shared(), nil
}

// CheckText refuses what not every engine keeps byte for byte.
func CheckText(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("is empty: want 1 to %d bytes", MaxName)
	case len(s) > MaxName:
		return fmt.Errorf("has %d bytes: want 1 to %d", len(s), MaxName)
	case !utf8.ValidString(s):
		return fmt.Errorf("%q is not valid UTF-8", s)
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%q contains NUL", s)
	}
	return nil
}
