package driver

import "time"

// Waiting identifies a place in the queue of a name.
type Waiting struct {
	Name    string
	Attempt string
}

// Attempts returns the attempts of places.
func Attempts(places []Waiting) []string {
	attempts := make([]string, len(places))
	for i, p := range places {
		attempts[i] = p.Attempt
	}
	return attempts
}

// Wait is a part of the wait-for graph: an owner's place in the queue of a name, or an owner's
// hold.
type Wait struct {
	Name    string
	Session string
	Host    string
	Thread  string
	Attempt string
	Holds   bool // the owner holds the name; otherwise it waits for it
	Units   int  // 0: the whole name
	// Capacity is, of a share, the number that its holder states. Of a place with a Need: if Need
	// units of Capacity fit, all requests up to this place fit.
	Capacity int
	Need     int       // of a place in the queue: the largest request up to and including this one; 0: the whole name
	Since    time.Time // of the grant, or of joining the queue, by the database's clock
}
