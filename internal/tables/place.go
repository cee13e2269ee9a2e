package tables

import (
	"fmt"
	"regexp"
	"sync/atomic"
)

// Place is where the tables of a client are: stated by an option, or found by the client's first
// statement that names one. It stays the same from then on, so that no later setting of a
// connection leads a statement to other tables.
type Place struct {
	stated *In
	found  atomic.Pointer[In]
}

// State sets the place. MUST be called before any other method.
func (p *Place) State(in *In) { p.stated = in }

// Stated returns the place that an option has set, or nil.
func (p *Place) Stated() *In { return p.stated }

// In returns the place, nil as long as it has not been found, and of a nil Place.
func (p *Place) In() *In {
	switch {
	case p == nil:
		return nil
	case p.stated != nil:
		return p.stated
	}
	return p.found.Load()
}

// Find looks for the place unless it is known. Of several goroutines that look at once, all get
// what the first has found. look returns the schema or database in which a connection finds the
// tables, and an error if it finds none.
func (p *Place) Find(look func() (*In, error)) error {
	if p.In() != nil {
		return nil
	}
	in, err := look()
	if err == nil {
		p.found.CompareAndSwap(nil, in)
	}
	return err
}

// Found returns the schema or database of a name that a server has told. "": the server has no name
// for the place.
func Found(name string) (*In, error) {
	if unquotable.MatchString(name) {
		return nil, fmt.Errorf("no statement of dblock can name %q, where its tables are: rename it, or move them",
			name)
	}
	return &In{name: name}, nil
}

// unquotable matches what would end a name in quotes, or look like a parameter of a statement.
var unquotable = regexp.MustCompile("[\"`'?\\\\\\x00-\\x1f]")
