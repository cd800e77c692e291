//go:build race

package testscripts

// raceFlags build the binary with the race detector when the tests have it.
var raceFlags = []string{"-race"}

// raceFactor is how many times more processor time it may then take.
const raceFactor = 15
