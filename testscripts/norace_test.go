//go:build !race

package testscripts

var raceFlags []string
