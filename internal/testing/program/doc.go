// Package program runs the servers of tests: it starts a program under an account that is not
// root's, and pauses and kills it with all processes that it has started.
//
// Elsewhere than on Linux servers come from the environment or from Docker, and everything here
// fails.
package program
