//go:build !unix

package sqlite

import "errors"

// inbox receives notices of other processes. It does not exist on this system, and the listener
// polls.
type inbox struct{}

func openInbox(string, string) (*inbox, error) { return nil, errors.ErrUnsupported }

func makeHostFolder(string) error { return errors.ErrUnsupported }

func (*inbox) stands() bool      { return false }
func (*inbox) read(func(notice)) {}
func (*inbox) close()            {}
func post(string, notice) error  { return errors.ErrUnsupported }
