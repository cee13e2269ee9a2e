// Package history writes the events of a client's locks into the database.
//
// Add keeps an event in memory. Run writes all events, in their order, 100 ms later at the
// earliest: a lock never waits for its history. While the database does not answer, up to 10,000
// events wait, and further ones are dropped. An event that the database refuses is dropped alone: a
// page that is refused is written in halves. The log and Dropped report the number of dropped
// events.
//
// An act that belongs to its event, such as Break, writes it in its own transaction instead, and
// Lose counts the event if that is refused.
package history
