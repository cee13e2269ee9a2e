package main

import "errors"

// writable cannot tell: it would have to evaluate access lists as Windows does.
func writable(string) error { return errors.ErrUnsupported }
