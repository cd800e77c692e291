package cmd

import (
	"os"
	"strings"
)

// tokenFlags are the arguments NAME TOKEN of renew and release. The token never
// comes from the environment: a command must not end its own lock by accident.
type tokenFlags struct {
	name, token string
	tokenFile   string
}

func (f *tokenFlags) addFlags(flags flagSet) {
	flags.StringVar(&f.tokenFile, "token-file", "", "read the token from `file`")
}

func (f *tokenFlags) parse(command string, flags flagSet, args []string) error {
	want := 2
	if flags.Changed("token-file") {
		want = 1
	}
	if len(args) != want {
		return usageError("give a lock name and a token (or --token-file); it is: dlock %s NAME TOKEN", command)
	}
	if f.name = args[0]; want == 2 {
		f.token = args[1]
	} else {
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return usageError("--token-file: %v", err)
		}
		f.token = strings.TrimSpace(string(text))
	}
	if err := checkName(f.name); err != nil {
		return err
	}
	if f.token == "" {
		return usageError("the token is empty")
	}
	return nil
}
