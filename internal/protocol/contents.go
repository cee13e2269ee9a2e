package protocol

// Contents returns the places and the shares of a name. Tests compare engines by their contents.
func (n *Name) Contents() (places []Place, shares []Share, err error) {
	for p, err := range n.queue() {
		if err != nil {
			return nil, nil, err
		}
		places = append(places, p)
	}
	shares, err = n.source.Shares()
	return places, shares, err
}
