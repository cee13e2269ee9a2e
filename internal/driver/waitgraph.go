package driver

import "time"

// Wait is a part of the wait-for graph: an owner's place in the queue of a name, or what an owner
// holds of it.
type Wait struct {
	Name    string
	Session string
	Host    string
	Thread  string
	Attempt string
	Holds   bool // the owner holds the name; otherwise it waits for it
	Units   int  // 0: the whole name
	// of a share, what its holder states; of a place with a Need, so many that where that fits all
	// up to it do
	Capacity int
	Need     int       // of a place in the queue: the largest request up to and including this one; 0: the whole name
	Since    time.Time // of the grant, or of joining the queue, by the database's clock
}
