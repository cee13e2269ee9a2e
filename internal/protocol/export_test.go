package protocol

// Reading has a name read its source through another one.
func Reading(n *Name, through func(Source) Source) *Name {
	n.source = through(n.source)
	return n
}
