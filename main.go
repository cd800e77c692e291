// Command dlock runs a command while it holds a named lock.
package main

//go:generate go run ./internal/generate

import (
	"os"

	"github.com/dlock/dlock/cmd"
	_ "github.com/dlock/dlock/internal/prefault"
)

func main() {
	os.Exit(cmd.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
