package driver

// CheckBy is Check by a build of another version.
func (s Schema) CheckBy(build int) error { return s.check(build) }
