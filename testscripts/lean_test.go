package testscripts

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// heavy are functions that no dlock may contain, since every start of it would pay for
// what they bring along.
var heavy = []string{
	"text/template.(*Template).Execute", // finds methods by name, so that the linker keeps all of all types
}

func TestProgramIsLean(t *testing.T) {
	program, err := os.ReadFile(filepath.Join(binDir, "dlock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, function := range heavy {
		if bytes.Contains(program, []byte(function)) {
			t.Errorf("the program contains %s", function)
		}
	}
	if known := "github.com/dlock/dlock/cmd.Main"; !bytes.Contains(program, []byte(known)) {
		t.Errorf("the program does not tell the names of its functions: there is no %s", known)
	}
}
