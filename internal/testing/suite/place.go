package suite

import "testing"

// test is one sentence about dblock.
type test struct {
	says string
	run  func(t *testing.T, e *env)
}

// The places of tests. A new test stands in own, unless something in it comes with time.
type (
	// own tests have a database each, in real time.
	own []test
	// moving tests have one each too, and may move its clock and that of their clients:
	// env.advance.
	moving []test
	// flowing tests have one each too, and time flies in it for the database and for the clients:
	// whatever comes with time comes soon. What is due within a TTL is waited for by its event.
	flowing []test
)

// placed is a test with what makes its env.
type placed struct {
	test
	env func(t *testing.T, w Wiring) *env
}

// inPlaces is a list of tests in their places.
func inPlaces(places ...interface{ placed() []placed }) (all []placed) {
	for _, p := range places {
		all = append(all, p.placed()...)
	}
	return all
}

func (tests own) placed() []placed { return place(tests, newEnv) }

func (tests moving) placed() []placed { return place(tests, movingEnv) }

func (tests flowing) placed() []placed {
	return place(tests, func(t *testing.T, w Wiring) *env {
		e := movingEnv(t, w)
		e.flow(t)
		return e
	})
}

func place(tests []test, env func(t *testing.T, w Wiring) *env) (all []placed) {
	for _, test := range tests {
		all = append(all, placed{test, env})
	}
	return all
}
