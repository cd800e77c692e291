// Package cmd is dlock's command line: one file a subcommand. It knows words, flags
// and exit codes, and no lock logic.
package cmd

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// app is what the subcommands share: the streams, and the settings of the place.
type app struct {
	stdin       io.Reader
	stdout      io.Writer
	ui          *ui
	schemes     []scheme
	machineFile string // names the lock service of this machine
	place       place
}

// Main runs dlock with the arguments after its name and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	return newApp(stdin, stdout, stderr).main(args)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{
		stdin: stdin, stdout: stdout, ui: &ui{out: stderr},
		schemes: schemes, machineFile: "/etc/dlock/backend",
	}
}

func (a *app) main(args []string) (code int) {
	defer a.ui.flush()
	defer func() {
		if r := recover(); r != nil {
			a.ui.fail("", fmt.Sprintf("a defect in dlock: %v", r), "please report it with this:\n"+string(debug.Stack()))
			code = exitDefect
		}
	}()
	root := newRootCmd(a, args...)
	root.SetArgs(args)
	return a.exitCode(root.Execute())
}

// Root returns the command line as data, for what is generated from it.
func Root() *cobra.Command { return newRootCmd(newApp(nil, io.Discard, io.Discard)) }

const rootLong = `dlock runs a command while it holds a named lock, and stops the command before
its lease can end.

  dlock run nightly -- ./backup.sh       wait for the lock, run, release
  dlock run -n nightly -- ./backup.sh    give up at once when it is taken
  dlock inspect                          who holds what

Without a configuration the locks are files of this machine. Name a lock service
with --backend, $DLOCK_BACKEND, or in /etc/dlock/backend.

` + runExitCodes

// newRootCmd builds the command line. With args that begin with a subcommand it has that one
// alone: to build the others takes longer than to run a short one.
func newRootCmd(a *app, args ...string) *cobra.Command {
	root := &cobra.Command{
		Use:               "dlock",
		Short:             "Run a command under a named lock",
		Long:              rootLong,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              usage(cobra.NoArgs),
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			if asked, _ := c.Flags().GetBool("version"); asked {
				_, err := fmt.Fprintln(a.stdout, "dlock", version())
				return err
			}
			return usageError("no subcommand given; begin with: dlock run NAME -- COMMAND")
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.ui.out)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		e := &exitError{code: exitUsage, msg: err.Error(), hint: "see " + c.CommandPath() + " --help"}
		if strings.Contains(e.msg, "shorthand flag: 'c'") {
			e.hint = "-c stands after the lock name: dlock run NAME -c 'SHELL LINE'"
		}
		return e
	})
	// Cobra's own --version takes a template, and with the text/template package the
	// linker can drop no method of any type: the program would be two thirds larger.
	root.Flags().Bool("version", false, "version for dlock")
	a.place.addFlags(root.PersistentFlags())
	completeValues(root, "log-format", "text", "json")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return a.settle(c.Flags()) }
	all := subcommands(a)
	if len(args) > 0 && all[args[0]] != nil {
		root.AddCommand(all[args[0]]())
		return root
	}
	for _, build := range all {
		root.AddCommand(build())
	}
	return root
}

func subcommands(a *app) map[string]func() *cobra.Command {
	return map[string]func() *cobra.Command{
		"run":        func() *cobra.Command { return newRunCmd(a, nil) },
		"acquire":    func() *cobra.Command { return newAcquireCmd(a, nil) },
		"renew":      func() *cobra.Command { return newRenewCmd(a, nil) },
		"release":    func() *cobra.Command { return newReleaseCmd(a, nil) },
		"inspect":    func() *cobra.Command { return newInspectCmd(a, nil) },
		"doctor":     func() *cobra.Command { return newDoctorCmd(a, nil) },
		"bench":      func() *cobra.Command { return newBenchCmd(a, nil) },
		"completion": func() *cobra.Command { return newCompletionCmd(a) },
		"version":    func() *cobra.Command { return newVersionCmd(a) },
	}
}

// usage makes what an argument check of cobra's says a usage error.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return &exitError{code: exitUsage, msg: err.Error(), hint: "see " + c.CommandPath() + " --help"}
		}
		return nil
	}
}

// settle fills in what the environment says and the command line does not.
func (a *app) settle(flags flagSet) error {
	if err := a.place.fromEnv(flags, os.LookupEnv); err != nil {
		return err
	}
	a.ui.quiet, a.ui.verbose, a.ui.json = a.place.quiet, a.place.verbose, a.place.logFormat == "json"
	return nil
}
