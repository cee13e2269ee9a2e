package protocol

import "slices"

// Sequence is several ops of one name as one op: an engine locks the name's row once, and writes it
// once. The ops run in their order, and leave what they would leave one by one: each finds the name
// as those before it have left it. Result.Each has a result for each of them. After an error of one
// of them nothing was done. All ops are By the same session, which counts as alive. None is a
// Recount, which reads the rows of the name without the changes of other ops.
type Sequence []Op

// On implements Op.
func (s Sequence) On() string { return s[0].On() }

// By implements Op.
func (s Sequence) By() string { return s[0].By() }

// Apply implements Op.
func (s Sequence) Apply(n *Name) (Result, error) {
	n.seen.page = len(s) + 1 // each op may grant the name to one place, and looks at the next
	if tokens := Released(s); len(tokens) > 0 {
		if err := n.look(tokens); err != nil {
			return Result{}, err
		}
	}
	each := make([]Result, len(s))
	for i, op := range s {
		var err error
		n.handed = len(n.Handoffs)
		if each[i], err = op.Apply(n); err != nil {
			return Result{}, err
		}
	}
	return Result{Outcome: Done, Next: n.Handoffs, Each: each}, nil
}

// patient reports whether the statements of a Sequence may wait for a locked row: if one of its ops
// must not wait, none does.
func (s Sequence) patient() bool {
	return !slices.ContainsFunc(s, func(op Op) bool { return !Waits(op) })
}

// Released returns the tokens of the shares that an op releases. An engine can read them together
// with the name's row.
func Released(op Op) (tokens []int64) {
	switch op := op.(type) {
	case Sequence:
		for _, one := range op {
			tokens = append(tokens, Released(one)...)
		}
	case Removal:
		if op.Cause == ByHolder && op.Shared {
			tokens = append(tokens, op.Token)
		}
	}
	return tokens
}
