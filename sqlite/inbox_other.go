//go:build !unix

package sqlite

import "errors"

// inbox is where a session hears from other processes: there is none here, and its listener polls.
type inbox struct{}

func openInbox(string, string) (*inbox, error) { return nil, errors.ErrUnsupported }

func (*inbox) stands() bool      { return false }
func (*inbox) read(func(notice)) {}
func (*inbox) close()            {}
func post(string, notice) error  { return errors.ErrUnsupported }
