package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

const completionLong = `Print the completion script of a shell.

  bash:        dlock completion bash > /etc/bash_completion.d/dlock
  zsh:         dlock completion zsh > "${fpath[1]}/_dlock"
  fish:        dlock completion fish > ~/.config/fish/completions/dlock.fish
  PowerShell:  dlock completion powershell | Out-String | Invoke-Expression`

func newCompletionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:       "completion bash|zsh|fish|powershell",
		Short:     "Print the completion script of a shell",
		Long:      completionLong,
		Args:      usage(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			}
			return root.GenPowerShellCompletionWithDesc(a.stdout)
		},
	}
}

// completeValues completes a flag that takes one of a few words.
func completeValues(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
}

// completeNames completes the first argument with the names that the lock service
// knows; it says nothing when that is slow or down.
func (a *app) completeNames(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && c.Name() == "run" {
		return nil, cobra.ShellCompDirectiveDefault // the command and its files
	}
	if len(args) > 0 && c.Name() != "inspect" || a.settle(c.Flags()) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	b, err := a.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list, _ := b.Inspect(ctx)
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
