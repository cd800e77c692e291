package consultest

import (
	"os/exec"
	"strings"
	"testing"
)

// TestProgram builds Consul, where that has not been done.
func TestProgram(t *testing.T) {
	out, err := exec.Command(Program(t), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "Consul v"+Version) {
		t.Errorf("%v\n%s", err, out)
	}
}
