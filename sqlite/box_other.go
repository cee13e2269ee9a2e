//go:build !unix

package sqlite

import "errors"

// box is where a session hears from other processes: there is none here, and its listener polls.
type box struct{}

func openBox(string, string) (*box, error) { return nil, errors.ErrUnsupported }

func (*box) stands() bool       { return false }
func (*box) read(func(notice))  {}
func (*box) close()             {}
func post(string, notice) error { return errors.ErrUnsupported }
