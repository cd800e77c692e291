//go:build !race

package testscripts

var raceFlags []string

const raceFactor = 1
