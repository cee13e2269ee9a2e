package driver

import "fmt"

// Pool is the use of the application's pool at one moment.
type Pool struct {
	InUse int    // connections in use
	Most  int    // that the pool allows; 0: any number, or unknown
	Kept  string // how many of those in use clients keep for themselves, and for which purpose; "": none
}

// Left reports whether the pool may have a free connection.
func (p Pool) Left() bool { return p.InUse < p.Most || p.Most == 0 }

// Full describes a pool without a free connection, and tells which of its connections the clients
// on it keep.
func (p Pool) Full() string {
	text := fmt.Sprintf("all %d connections of the pool are in use", p.Most)
	if p.Most == 0 {
		text = fmt.Sprintf("%d connections of the pool are in use", p.InUse)
	}
	if p.Kept == "" {
		return text + ", and dblock keeps none of them"
	}
	return text + ", of which dblock keeps " + p.Kept
}
