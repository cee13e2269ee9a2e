package driver

import "time"

// Wait is a row of who waits for whom: an owner's place in the queue of a name, or what an owner
// holds of it.
type Wait struct {
	Name     string
	Session  string
	Host     string
	Thread   string
	Attempt  string
	Holds    bool      // the owner has it; else it waits for it
	Units    int       // 0: the whole name
	Capacity int       // of the name; 0: nobody has said
	Need     int       // of a place in the queue: the most units that it, or one before it, wants at once; 0: the whole name
	Since    time.Time // of the grant, or of joining the queue, by the database's clock
}
