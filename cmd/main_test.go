package cmd

import (
	"os"
	"testing"
)

// TestMain lets this test binary also be a dlock that knows the scripted lock service.
func TestMain(m *testing.M) {
	if os.Getenv("DLOCK_TEST_MAIN") != "" {
		a := newApp(os.Stdin, os.Stdout, os.Stderr)
		a.schemes = append(a.schemes, scheme{name: "scripted", open: openScripted})
		os.Exit(a.main(os.Args[1:]))
	}
	os.Exit(m.Run())
}
