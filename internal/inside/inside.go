// Package inside opens the public types of this module to its packages, and to no other module. A
// public type embeds an Inside with what it is made of. The methods of Inside are not exported, so
// that the public type has no field and no method that another module could use. Of and Make reach
// them through interfaces of this package, which another module cannot import.
package inside

// Inside is what a public type is made of. The type embeds it under an alias that is not exported,
// which keeps it off the public page.
type Inside[T any] struct{ value T }

func (i Inside[T]) inside() T       { return i.value }
func (i *Inside[T]) contain(from T) { i.value = from }

// Of returns what a value of a public type is made of; the zero T for the zero value.
func Of[T any](outside interface{ inside() T }) T { return outside.inside() }

// Make makes a value of a public type: inside.Make[dblock.Lock](l).
func Make[Outside, T any, Pointer interface {
	*Outside
	contain(from T)
}](from T) *Outside {
	outside := new(Outside)
	Pointer(outside).contain(from)
	return outside
}
