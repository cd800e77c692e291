//go:build !linux

package daemon

import "os/exec"

// start starts cmd. Only the test's clean-up ends it on this system.
func start(cmd *exec.Cmd) error { return cmd.Start() }
