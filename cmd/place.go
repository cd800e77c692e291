package cmd

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/file"
)

type flagSet = *pflag.FlagSet

// place is the settings that belong to a place and not to a call: each has a
// variable, and the flag beats it.
type place struct {
	backend, backendFile string
	namespace            string
	namespaceSet         bool
	backendSource        string // flag, variable or file that named the service; empty for the default
	quiet, verbose       bool
	logFormat            string
}

func (p *place) addFlags(flags flagSet) {
	flags.StringVarP(&p.backend, "backend", "b", "", "lock service, as `URL` (file:///dir, redis://host); default $DLOCK_BACKEND, /etc/dlock/backend, files of this machine")
	flags.StringVar(&p.backendFile, "backend-file", "", "`file` that holds the URL of the lock service ($DLOCK_BACKEND_FILE)")
	flags.StringVar(&p.namespace, "namespace", "", "prefix of all lock names ($DLOCK_NAMESPACE); default dlock, and none for files")
	flags.BoolVarP(&p.quiet, "quiet", "q", false, "print failures only ($DLOCK_QUIET)")
	flags.BoolVarP(&p.verbose, "verbose", "v", false, "tell more, to stderr")
	flags.StringVar(&p.logFormat, "log-format", "text", "`format` of diagnostics: text or json ($DLOCK_LOG_FORMAT)")
}

// fromEnv completes the settings from the environment.
func (p *place) fromEnv(flags flagSet, lookup func(string) (string, bool)) error {
	if v, ok := lookup("DLOCK_LOG_FORMAT"); ok && !flags.Changed("log-format") {
		p.logFormat = v
	}
	if p.logFormat != "text" && p.logFormat != "json" {
		return usageError("log format %q: it is text or json", p.logFormat)
	}
	if v, ok := lookup("DLOCK_QUIET"); ok && !flags.Changed("quiet") && !flags.Changed("verbose") {
		switch strings.ToLower(v) {
		case "1", "true", "yes":
			p.quiet = true
		case "", "0", "false", "no":
		default:
			return usageError("DLOCK_QUIET is %q: it is 1 or 0", v)
		}
	}
	if p.quiet && p.verbose {
		return usageError("--quiet and --verbose exclude each other")
	}
	p.namespaceSet = flags.Changed("namespace")
	if v, ok := lookup("DLOCK_NAMESPACE"); ok && !p.namespaceSet {
		p.namespace, p.namespaceSet = v, true
	}
	if p.namespace != "" {
		if err := backend.CheckName(p.namespace); err != nil {
			return usageError("namespace %q: %s", p.namespace, strings.ReplaceAll(err.Error(), "lock name", "namespace"))
		}
	}
	return p.findBackend(flags, lookup)
}

// findBackend looks where a lock service can be named. The first place that names
// one decides: one that is empty there is an error and no reason to go on, since two
// hosts that use different services do not exclude each other.
func (p *place) findBackend(flags flagSet, lookup func(string) (string, bool)) error {
	if flags.Changed("backend") && flags.Changed("backend-file") {
		return usageError("--backend and --backend-file exclude each other")
	}
	if flags.Changed("backend") {
		p.backendSource = "--backend"
		return nil
	}
	if flags.Changed("backend-file") {
		p.backendSource = "--backend-file"
		return nil
	}
	if v, ok := lookup("DLOCK_BACKEND"); ok {
		p.backend, p.backendSource = v, "DLOCK_BACKEND"
		return nil
	}
	if v, ok := lookup("DLOCK_BACKEND_FILE"); ok {
		p.backendFile, p.backendSource = v, "DLOCK_BACKEND_FILE"
	}
	return nil
}

// environ names the same lock service to a dlock that we start.
func (p *place) environ() []string {
	if p.backendSource == "--backend-file" {
		return []string{"DLOCK_BACKEND_FILE=" + p.backendFile}
	}
	return nil // it looks where we have looked
}

// open connects to the lock service that the settings name.
func (a *app) open() (backend.Backend, error) {
	p := a.place
	url, source := p.backend, p.backendSource
	switch source {
	case "--backend", "DLOCK_BACKEND":
	case "--backend-file", "DLOCK_BACKEND_FILE":
		if p.backendFile == "" {
			return nil, usageError("%s is empty", source)
		}
		text, err := os.ReadFile(p.backendFile)
		if err != nil {
			return nil, usageError("%s: %v", source, err)
		}
		url, source = string(text), p.backendFile
	default:
		text, err := os.ReadFile(a.machineFile)
		if _, missing := os.Lstat(a.machineFile); os.IsNotExist(err) && os.IsNotExist(missing) {
			return a.openDefault() // and not where it is a link to nowhere
		}
		if err != nil {
			return nil, usageError("%v: this machine names its lock service there", err)
		}
		url, source = string(text), a.machineFile
	}
	if url = strings.TrimSpace(url); url == "" {
		return nil, usageError("%s names no lock service: it is empty", source)
	}
	return a.openURL(url, source)
}

// openDefault is the file backend in its default directory.
func (a *app) openDefault() (backend.Backend, error) {
	opts, err := file.Default()
	if err != nil {
		return nil, err
	}
	opts.Namespace = a.place.namespace
	return file.New(opts), nil
}

// describe names the service for messages.
func describeBackend(l backend.Limits) string {
	if l.Implicit {
		return fmt.Sprintf("%s (the default)", l.Address)
	}
	return l.Address
}
